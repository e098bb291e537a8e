"""Validation of plans: their keys, the values of each, and consistency. See `plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from carpool import function_name
from carpool.validation import rules
from carpool.validation.problems import Problems, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["check"]

# A class is deployed as its own function, so both names are as those of functions.
_NAME = rules.text("a name of a-z, 0-9 and inner '-'", function_name.PATTERN)
_WORD = rules.text("text that is not empty")
_ANY_TEXT = rules.text("text", r".*")
_AMOUNT = rules.number("a number of at least 0", lambda value: value >= 0)
_ABOVE_ZERO = rules.number("a number above 0", lambda value: value > 0)
_RATIO = rules.number("a share from 0 to 1", lambda value: 0 <= value <= 1)
_PERCENT = rules.number("a percentage from 0 to 100", lambda value: 0 <= value <= 100)  # noqa: PLR2004
_COUNT = rules.number("a whole number of at least 0", lambda value: value >= 0, whole=True)
_SIZE = rules.number("a whole number of at least 1", lambda value: value >= 1, whole=True)

_CLASS = rules.record(
    {
        "name": _NAME,
        "variant": _ANY_TEXT,
        "cpu": _ABOVE_ZERO,
        "gpu": _PERCENT,
        "memory_mb": rules.maybe(_ABOVE_ZERO),
        "batch_size": _SIZE,
        "replicas": _COUNT,
        "exec_s": rules.maybe(_ABOVE_ZERO),
        "rate_low": _AMOUNT,
        "rate_high": rules.maybe(_AMOUNT),
    },
    required=frozenset({"name", "cpu", "batch_size", "replicas"}),
)
_ROUTE = rules.record(
    {"app": _WORD, "weights": rules.share_map(), "max_wait_s": _AMOUNT, "accuracy": _RATIO},
    required=frozenset({"app", "weights", "max_wait_s"}),
)
_ON_OFFER = rules.record(
    {
        "name": _NAME,
        "variant": _WORD,
        "accuracy": _RATIO,
        "latency_s": _ABOVE_ZERO,
        "cost": _AMOUNT,
        "load_s": _AMOUNT,
    },
    required=frozenset({"name", "variant", "accuracy", "latency_s"}),
)
_QUANTILES = rules.record({p: rules.maybe(_AMOUNT) for p in ("p50", "p95", "p99")}, frozenset())
_PREDICTED = rules.record(
    {
        "latency_s": _QUANTILES,
        "cost_per_request": rules.maybe(_AMOUNT),
        "mean_batch": rules.maybe(_AMOUNT),
        "slo_miss_ratio": rules.maybe(_RATIO),
    },
    required=frozenset(),
)
_PLAN = rules.record(
    {
        "function": _NAME,
        "version": _COUNT,
        "policy": _WORD,
        "classes": rules.each(_CLASS, unique="name"),
        "routes": rules.each(_ROUTE, unique="app"),
        "prewarm_s": _AMOUNT,
        "keep_alive_s": rules.maybe(_AMOUNT),
        "predicted": _PREDICTED,
        "explain": rules.each(_ANY_TEXT),
        "variants": rules.each(_ON_OFFER, unique="name"),
        "term": _COUNT,
        "last_only": rules.flag,
    },
    required=frozenset({"function", "version", "policy", "classes", "routes"}),
)


def check(data: object) -> dict[str, Any]:
    """Validate a plan and return it.

    Raises:
        ConfigError: all problems found, each with a path such as ``classes[0].cpu``.
    """
    problems = Problems()
    _PLAN(data, "", problems)
    if isinstance(data, dict):
        _cross_check(data, problems)
    problems.raise_if_any()
    assert isinstance(data, dict)  # noqa: S101  the schema has checked it; this tells mypy
    return data


def _cross_check(data: Mapping[str, Any], problems: Problems) -> None:
    """Check consistency between fields; ill-formed ones are already reported and skipped."""
    names = set()
    for index, item in _records(data.get("classes")):
        names.add(str(item.get("name")))
        low, high = item.get("rate_low"), item.get("rate_high")
        if isinstance(low, (int, float)) and isinstance(high, (int, float)) and low > high:
            expected = f"at most rate_high, which is {high}"
            problems.add(f"classes[{index}].rate_low", low, expected)
    for index, item in _records(data.get("routes")):
        weights = item.get("weights")
        if not isinstance(weights, dict):
            continue
        for name in weights:
            if name not in names:
                expected = f"a class of the plan: {', '.join(sorted(names)) or 'it has none'}"
                hint = nearest(str(name), names)
                problems.add(f"routes[{index}].weights.{name}", weights[name], expected, hint)


def _records(value: object) -> list[tuple[int, dict[str, Any]]]:
    items = value if isinstance(value, list) else []
    return [(index, item) for index, item in enumerate(items) if isinstance(item, dict)]
