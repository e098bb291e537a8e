"""The plan that sidecars follow while instances of an old one stand in for those that load."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.plan import InstanceClass, Plan, Route

__all__ = ["interim"]


def interim(plan: Plan, surplus: Sequence[InstanceClass]) -> Plan:
    """``plan`` with routes to instances that it does not want, one class for each, as well.

    They get the share that is theirs by what they can take; classes of the same name share theirs.
    A route that asks for an accuracy leads to variants that have it, and to nothing else.
    """
    names = {kind.name for kind in plan.classes}
    others = Counter(kind for kind in surplus if kind.name not in names)
    if not others or not plan.routes:
        return plan
    spare = {kind: _capacity(replace(kind, replicas=count)) for kind, count in others.items()}
    own = sum(map(_capacity, plan.classes))
    accuracies = {offer.variant: offer.accuracy for offer in plan.variants}
    classes = {kind.name: kind for kind in others}
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
    """The route, to those of the spare instances as well that are good enough for it."""
    least = route.accuracy
    suiting = {k: n for k, n in spare.items() if accuracies.get(k.variant, 0.0) >= least}
    total = sum(suiting.values())
    if not total:
        return route
    share = total / (total + own)
    weights = {name: (1 - share) * part for name, part in route.weights.items()}
    for kind, amount in suiting.items():
        weights[kind.name] = weights.get(kind.name, 0.0) + share * amount / total
    return replace(route, weights=weights)


def _capacity(kind: InstanceClass) -> float:
    """Requests per second that the instances of a class can take."""
    each = kind.rate_high or (kind.batch_size / kind.exec_s if kind.exec_s else kind.batch_size)
    return each * kind.replicas
