"""Policies to compare, and settings of the best one to try afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simulator.matrix.cells import POLICIES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["candidates", "params", "variations"]

_SETTINGS: dict[str, list[dict[str, Any]]] = {
    "infless": [{"alpha": 0.65}, {"alpha": 0.9}],
    "batch": [{"reserve": 0.5}, {"amortised_s": 120.0}],
    "harmonybatch": [{"spare": 0.5}, {"smoothing_s": 15.0}],
    "infaas": [{"slack": 1.3}, {"smoothing_s": 5.0}, {"calm_s": 60.0}],
    "openfaas": [{"proportion": 0.6}, {"stable_s": 60.0}, {"cpu": 2.0, "gpu": 0.0}],
    "carpool": [{"smoothing_s": 5.0}, {"smoothing_s": 40.0}],
}


def candidates(named: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return parameters by name, of all built-in policies that scale or of the named ones."""
    if not named:
        return {name: dict(given) for name, given in POLICIES.items()}
    return {name: dict(POLICIES.get(name, {"policy": name})) for name in named}


def variations(name: str, policies: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return entries with other settings of one policy, under names that show the settings."""
    given = policies[name]
    return {
        "-".join([name, *(f"{key}-{value:g}" for key, value in other.items())]): {**given, **other}
        for other in _SETTINGS.get(given["policy"], [])
    }


def params(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry's parameters without the policy's name."""
    return {key: value for key, value in entry.items() if key != "policy"}
