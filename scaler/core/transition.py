"""The plan that sidecars follow while instances of an old one stand in for those that load."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.plan import InstanceClass, Plan, Route

__all__ = ["interim"]


def interim(plan: Plan, surplus: Sequence[InstanceClass]) -> Plan:
    """``plan`` with routes to instances that it does not want, one class for each, as well.

    They get the share that is theirs by what they can take; classes of the same name share theirs.
    """
    names = {kind.name for kind in plan.classes}
    others = Counter(kind for kind in surplus if kind.name not in names)
    if not others or not plan.routes:
        return plan
    spare = {kind: _capacity(replace(kind, replicas=count)) for kind, count in others.items()}
    own = sum(map(_capacity, plan.classes))
    share = sum(spare.values()) / (sum(spare.values()) + own)
    extra: dict[str, float] = {}
    for kind, amount in spare.items():
        extra[kind.name] = extra.get(kind.name, 0.0) + share * amount / sum(spare.values())
    classes = {kind.name: kind for kind in others}
    return replace(
        plan,
        classes=(*plan.classes, *classes.values()),
        routes=tuple(_with(route, extra, 1 - share) for route in plan.routes),
    )


def _with(route: Route, extra: dict[str, float], rest: float) -> Route:
    own = {name: rest * share for name, share in route.weights.items()}
    return replace(route, weights={**own, **extra})


def _capacity(kind: InstanceClass) -> float:
    """Requests per second that the instances of a class can take."""
    each = kind.rate_high or (kind.batch_size / kind.exec_s if kind.exec_s else kind.batch_size)
    return each * kind.replicas
