"""The interim plan that sidecars follow while old instances stand in for loading ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.plan import InstanceClass, Plan, Route

__all__ = ["interim"]


def interim(plan: Plan, surplus: Sequence[InstanceClass]) -> Plan:
    """Return ``plan`` with the classes of surplus instances added to its routes.

    They get a share in proportion to their capacity; classes of the same name share it. A route
    that requires an accuracy leads only to variants that have it.
    """
    names = {instance_class.name for instance_class in plan.classes}
    others = Counter(
        instance_class for instance_class in surplus if instance_class.name not in names
    )
    if not others or not plan.routes:
        return plan
    spare = {
        instance_class: _capacity(replace(instance_class, replicas=count))
        for instance_class, count in others.items()
    }
    own = sum(map(_capacity, plan.classes))
    accuracies = {offer.variant: offer.accuracy for offer in plan.variants}
    classes = {instance_class.name: instance_class for instance_class in others}
    return replace(
        plan,
        classes=(*plan.classes, *classes.values()),
        routes=tuple(_with(route, spare, own, accuracies) for route in plan.routes),
    )


def _with(
    route: Route,
    spare: Mapping[InstanceClass, float],
    own: float,
    accuracies: Mapping[str, float],
) -> Route:
    """Return the route, extended to the spare instances that meet its accuracy."""
    least = route.accuracy
    suiting = {k: n for k, n in spare.items() if accuracies.get(k.variant, 0.0) >= least}
    total = sum(suiting.values())
    if not total:
        return route
    share = total / (total + own)
    weights = {name: (1 - share) * part for name, part in route.weights.items()}
    for instance_class, amount in suiting.items():
        weights[instance_class.name] = (
            weights.get(instance_class.name, 0.0) + share * amount / total
        )
    return replace(route, weights=weights)


def _capacity(instance_class: InstanceClass) -> float:
    """Return the requests per second that the instances of a class can take."""
    each = instance_class.rate_high or (
        instance_class.batch_size / instance_class.exec_s
        if instance_class.exec_s
        else instance_class.batch_size
    )
    return each * instance_class.replicas
