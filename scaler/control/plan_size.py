"""The size of a plan, and plans with fewer instances."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.plan import InstanceClass, Plan

__all__ = ["instances", "less", "reduces", "taken", "without"]


def instances(plan: Plan) -> int:
    """Return the number of instances of all classes."""
    return sum(each.replicas for each in plan.classes)


def taken(plan: Plan) -> float:
    """Return a plan's requests per second, counting batch sizes for classes without a rate."""
    return sum(
        each.replicas * (each.batch_size if each.rate_high is None else each.rate_high)
        for each in plan.classes
    )


def reduces(plan: Plan, before: Plan) -> bool:
    """Return whether a plan has less capacity than another, and lacks some of its instances.

    Capacity alone is not enough: it is an estimate that follows measurements, so it may fall while
    the instances stay the same.
    """
    there = {each.name: each.replicas for each in plan.classes}
    lacks = any(there.get(each.name, 0) < each.replicas for each in before.classes)
    return lacks and taken(plan) < taken(before)


def without(plan: Plan, count: int) -> Plan:
    """Return the plan with ``count`` fewer instances, removing those of least capacity first."""
    fewer: Counter[str] = Counter()
    for each in sorted(plan.classes, key=lambda each: each.rate_high or each.batch_size):
        fewer[each.name] = min(each.replicas, count - fewer.total())
    return replace(plan, classes=less(plan.classes, fewer))


def less(classes: Sequence[InstanceClass], fewer: Mapping[str, int]) -> tuple[InstanceClass, ...]:
    """Return the classes with fewer instances, by name of the class."""
    return tuple(
        replace(each, replicas=each.replicas - fewer.get(each.name, 0)) for each in classes
    )
