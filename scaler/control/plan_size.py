"""How large a plan is, and the same plan with fewer instances."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.plan import InstanceClass, Plan

__all__ = ["instances", "less", "reduces", "taken", "without"]


def instances(plan: Plan) -> int:
    """How many there are of all classes."""
    return sum(each.replicas for each in plan.classes)


def taken(plan: Plan) -> float:
    """Requests per second that a plan's instances take, or how many at a time if it says none."""
    return sum(
        each.replicas * (each.batch_size if each.rate_high is None else each.rate_high)
        for each in plan.classes
    )


def reduces(plan: Plan, before: Plan) -> bool:
    """Whether a plan takes less than another, and lacks some of its instances.

    What instances take is an estimate that follows what is measured: the same ones may be said to
    take less than before.
    """
    there = {each.name: each.replicas for each in plan.classes}
    lacks = any(there.get(each.name, 0) < each.replicas for each in before.classes)
    return lacks and taken(plan) < taken(before)


def without(plan: Plan, count: int) -> Plan:
    """The plan with so many instances fewer, those that take the least first."""
    fewer: Counter[str] = Counter()
    for each in sorted(plan.classes, key=lambda each: each.rate_high or each.batch_size):
        fewer[each.name] = min(each.replicas, count - fewer.total())
    return replace(plan, classes=less(plan.classes, fewer))


def less(classes: Sequence[InstanceClass], fewer: Mapping[str, int]) -> tuple[InstanceClass, ...]:
    """The classes with so many instances fewer, by name."""
    return tuple(
        replace(each, replicas=each.replicas - fewer.get(each.name, 0)) for each in classes
    )
