"""How large a plan is, and the same plan with fewer instances."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.plan import InstanceClass, Plan

__all__ = ["instances", "less", "taken", "without"]


def instances(plan: Plan) -> int:
    """How many there are of all classes."""
    return sum(kind.replicas for kind in plan.classes)


def taken(plan: Plan) -> float:
    """Requests per second that a plan's instances take, or how many at a time if it says none."""
    return sum(
        kind.replicas * (kind.batch_size if kind.rate_high is None else kind.rate_high)
        for kind in plan.classes
    )


def without(plan: Plan, count: int) -> Plan:
    """The plan with so many instances fewer, those that take the least first."""
    fewer: Counter[str] = Counter()
    for kind in sorted(plan.classes, key=lambda kind: kind.rate_high or kind.batch_size):
        fewer[kind.name] = min(kind.replicas, count - fewer.total())
    return replace(plan, classes=less(plan.classes, fewer))


def less(classes: Sequence[InstanceClass], fewer: Mapping[str, int]) -> tuple[InstanceClass, ...]:
    """The classes with so many instances fewer, by name."""
    return tuple(
        replace(kind, replicas=kind.replicas - fewer.get(kind.name, 0)) for kind in classes
    )
