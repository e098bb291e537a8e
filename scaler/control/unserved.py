"""Finds applications for which a plan has no suitable instance, and adds the missing instances.

A plan with less capacity than the one before is held back for a while (`stabilization`). But it may
be the first with a suitable instance for requests that state demands: one large variant in place of
three small ones. Held back entirely, it would have those requests refused throughout the window.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from carpool.plan import InstanceClass, OnOffer, Plan, Route
    from carpool.scaling import Application, FunctionLoad

__all__ = ["lacks_capacity", "serving"]


class _Offers(NamedTuple):
    """Offers and accuracies of plans' classes: by class name, and by variant."""

    by_class: dict[str, OnOffer]
    accuracies: dict[str, float]

    @classmethod
    def of(cls, *plans: Plan) -> _Offers:
        offers = [offer for plan in plans for offer in plan.variants]
        return cls({o.name: o for o in offers}, {o.variant: o.accuracy for o in offers})

    def suits(self, each: InstanceClass, app: Application) -> bool:
        """Return whether instances of a class may answer an application's requests."""
        offer = self.by_class.get(each.name)
        if offer is not None:
            return _suits(offer, app)
        accurate = self.accuracies.get(each.variant, 0.0) >= app.accuracy
        return accurate and app.variant in ("", each.variant)

    def unserved(self, load: FunctionLoad, *plans: Plan) -> list[Application]:
        """Return the applications with requests that no instance of the plans may answer."""
        running = [each for plan in plans for each in plan.classes if each.replicas]
        return [
            app
            for app in load.apps
            if app.rate_rps > 0 and not any(self.suits(each, app) for each in running)
        ]


def serving(load: FunctionLoad, current: Plan, wanted: Plan) -> Plan:
    """Return the current plan, with wanted instances for the applications that it does not serve.

    Args:
        load: Load of the function.
        current: The plan in force, or one wanted a while ago.
        wanted: The plan wanted now.
    """
    if current is wanted or not wanted.variants:
        return current
    offers = _Offers.of(current, wanted)
    unserved = offers.unserved(load, current)
    needed = {
        each.name: each
        for each in wanted.classes
        if each.replicas and any(offers.suits(each, app) for app in unserved)
    }
    if not needed:
        return current
    there = {each.name: each for each in current.classes} | needed
    unserved_apps = {app.name for app in unserved if not app.chooses}
    known = {offer.name for offer in current.variants}
    return replace(
        current,
        classes=tuple(there.values()),
        routes=_routes(current.routes, wanted.routes, unserved_apps, there.keys()),
        variants=(*current.variants, *(o for o in wanted.variants if o.name not in known)),
    )


def lacks_capacity(load: FunctionLoad, current: Plan, wanted: Plan) -> bool:
    """Return whether requests wait for an instance on offer that neither plan has.

    A reduction then frees capacity for it.
    """
    if not wanted.variants:
        return False
    offers = _Offers.of(current, wanted)
    waiting = offers.unserved(load, current, wanted)
    return any(_suits(offer, app) for app in waiting for offer in wanted.variants)


def _suits(offer: OnOffer, app: Application) -> bool:
    return (
        app.variant in ("", offer.variant)
        and offer.accuracy >= app.accuracy
        and offer.latency_s <= app.slo_s
        and offer.cost <= app.cost
    )


def _routes(
    current: Sequence[Route],
    wanted: Iterable[Route],
    unserved_apps: set[str],
    classes: Iterable[str],
) -> tuple[Route, ...]:
    """Return the current routes, and the wanted ones of applications that are newly served."""
    names = set(classes)
    new = {
        route.app: route
        for route in wanted
        if route.app in unserved_apps and names.issuperset(route.weights)
    }
    return (*(route for route in current if route.app not in new), *new.values())
