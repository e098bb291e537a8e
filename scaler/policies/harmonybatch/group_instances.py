"""Computes the number of instances of each group: how many it needs, and how many fit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scaler.policies.common.erlang import enough

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.scaling import ClusterView, FunctionLoad, Size
    from scaler.policies.harmonybatch.settling import Group

__all__ = ["missing_rps", "placed", "wanted"]

_IDLE_RPS = 1e-8  # an application with a lower rate sends nothing
_SPARE = 1.3  # existing instances stay up to this multiple of the wanted number
_ROUNDING = 1e-9


def wanted(groups: Sequence[Group], load: FunctionLoad, waiting: float) -> list[int]:
    """Return the instances wanted for each group, at the last measured rate if above the average.

    Args:
        groups: All groups of the function.
        load: Load of the function.
        waiting: Share of batches that may find all instances busy.
    """
    counts = []
    for group in groups:
        rate = max(_measured_rps(group, load), group.rate_rps)
        if rate < _IDLE_RPS * len(load.apps):
            counts.append(0 if load.rate_rps == 0 else 1)
            continue
        full_s = load.model.predict(*group.configuration, load.percentile) or math.inf
        count = enough(rate / group.mean_batch * group.mean_exec_s, waiting)
        counts.append(max(count, math.ceil(rate * full_s / group.configuration.batch)))
    counts[0] += max(load.min_instances - sum(counts), 0)
    return counts


def placed(
    groups: Mapping[Size, Group], counts: Sequence[int], load: FunctionLoad, cluster: ClusterView
) -> list[int]:
    """Return how many of the wanted instances exist or fit, within the function's limit.

    Args:
        groups: All groups of the function, by instance size.
        counts: Instances that each wants.
        load: Load of the function.
        cluster: The servers, on which the missing ones are placed.
    """
    left = load.instance_limit
    placements = []
    for size, count in zip(groups, counts, strict=True):
        there = load.running[size].total if size in load.running else 0
        # A small surplus is not worth stopping.
        few = there if count < there <= _SPARE * count + 1 else count
        most = int(min(few, left))
        there = min(there, most)
        there += cluster.place_up_to(size.resources, most - there)
        left -= there
        placements.append(there)
    return placements


def missing_rps(load: FunctionLoad, groups: Mapping[Size, Group], counts: Sequence[int]) -> float:
    """Return the rate that the instances cannot serve, or that no instance is fast enough for."""
    missing = load.rate_rps - sum(
        min(_measured_rps(group, load), count * size.rate_rps)
        for (size, group), count in zip(groups.items(), counts, strict=True)
    )
    return missing if missing > _ROUNDING * load.rate_rps else 0.0


def _measured_rps(group: Group, load: FunctionLoad) -> float:
    rates = {app.name: app.rate_rps for app in load.apps}
    return sum(rates[app] for member in group.members for app in member.apps)
