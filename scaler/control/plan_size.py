"""The size of a plan, and plans with fewer instances.

Classes found deployed, and that of a first plan, do not state a rate. What their instances can
serve is unknown; batch sizes only compare such classes with each other.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from carpool.plan import InstanceClass, Plan, Route

__all__ = ["capacities", "capacity_rps", "instances", "less", "reduces", "without"]


def instances(plan: Plan) -> int:
    """Return the number of instances of all classes."""
    return sum(each.replicas for each in plan.classes)


def capacity_rps(classes: Iterable[InstanceClass]) -> float:
    """Return the requests per second that instances can serve; infinite if that is unknown."""
    return sum(
        each.replicas * (math.inf if each.rate_high is None else each.rate_high)
        for each in classes
        if each.replicas
    )


def capacities(classes: Collection[InstanceClass]) -> dict[InstanceClass, float]:
    """Return what one instance of each class can serve, relative to the others.

    These are the rates, or if one of them is unknown, the batch sizes.
    """
    rates = {each: each.rate_high for each in classes if each.rate_high is not None}
    return rates if len(rates) == len(classes) else {each: each.batch_size for each in classes}


def reduces(plan: Plan, before: Plan) -> bool:
    """Return whether a plan has less capacity than another, and lacks some of its instances.

    Capacity alone is not enough: it is an estimate that follows measurements, so it may fall while
    the instances stay the same. If that of the other plan is unknown, it is only reduced if no
    instances are added.
    """
    there = {each.name: each.replicas for each in plan.classes}
    had = {each.name: each.replicas for each in before.classes}
    if all(there.get(name, 0) >= count for name, count in had.items()):
        return False
    before_rps = capacity_rps(before.classes)
    if before_rps < math.inf:
        return capacity_rps(plan.classes) < before_rps
    return all(count <= had.get(name, 0) for name, count in there.items())


def without(plan: Plan, count: int) -> Plan:
    """Return the plan with ``count`` fewer instances, removing those of least capacity first."""
    fewer: Counter[str] = Counter()
    for each, _ in sorted(capacities(plan.classes).items(), key=lambda entry: entry[1]):
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
    capacity = capacities(classes)

    def led(route: Route) -> Route:
        if had.isdisjoint(route.weights) or not left.isdisjoint(route.weights):
            return route
        suiting = {
            each.name: each.replicas * capacity[each]
            for each in classes
            if each.replicas and accuracies.get(each.variant, 0.0) >= route.accuracy
        }
        total = sum(suiting.values())
        weights = {name: part / total for name, part in suiting.items()}
        return replace(route, weights=weights) if weights else route

    return replace(plan, classes=classes, routes=tuple(map(led, plan.routes)))
