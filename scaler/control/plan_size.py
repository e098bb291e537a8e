"""The size of a plan, and plans with fewer instances."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.plan import InstanceClass, Plan, Route

__all__ = ["instances", "less", "reduces", "taken", "without"]


def instances(plan: Plan) -> int:
    """Return the number of instances of all classes."""
    return sum(each.replicas for each in plan.classes)


def taken(plan: Plan) -> float:
    """Return a plan's requests per second, counting batch sizes for classes without a rate."""
    return sum(map(_capacity, plan.classes))


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
    return less(plan, fewer)


def less(plan: Plan, fewer: Mapping[str, int]) -> Plan:
    """Return the plan with fewer instances, by name of the class.

    A route all of whose instances are removed leads to the remaining ones that are accurate enough,
    as nothing would answer its requests otherwise. One that had none before stays as it is.
    """
    classes = tuple(
        replace(each, replicas=each.replicas - fewer.get(each.name, 0)) for each in plan.classes
    )
    had = {each.name for each in plan.classes if each.replicas}
    left = {each.name for each in classes if each.replicas}
    accuracies = {offer.variant: offer.accuracy for offer in plan.variants}

    def led(route: Route) -> Route:
        if had.isdisjoint(route.weights) or not left.isdisjoint(route.weights):
            return route
        suiting = {
            each.name: _capacity(each)
            for each in classes
            if each.replicas and accuracies.get(each.variant, 0.0) >= route.accuracy
        }
        total = sum(suiting.values())
        weights = {name: part / total for name, part in suiting.items()}
        return replace(route, weights=weights) if weights else route

    return replace(plan, classes=classes, routes=tuple(map(led, plan.routes)))


def _capacity(each: InstanceClass) -> float:
    return each.replicas * (each.batch_size if each.rate_high is None else each.rate_high)
