"""Applications that a plan leaves without an instance that suits them, and what ends that.

A plan that takes less than the one before is held back for a while (`stabilization`). It may be the
first with an instance for requests that say what they need, though: one large variant in the place
of three small ones. Held back whole, it would have them refused for as long as the window is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from carpool.plan import InstanceClass, OnOffer, Plan, Route
    from carpool.scaling import Application, FunctionLoad

__all__ = ["lacks_room", "serving"]


class _Offers(NamedTuple):
    """What is known of the classes of plans: by their names, and by their variants."""

    by_class: dict[str, OnOffer]
    accuracies: dict[str, float]

    @classmethod
    def of(cls, *plans: Plan) -> _Offers:
        offers = [offer for plan in plans for offer in plan.variants]
        return cls({o.name: o for o in offers}, {o.variant: o.accuracy for o in offers})

    def suits(self, each: InstanceClass, app: Application) -> bool:
        """Whether instances of a class may answer an application's requests."""
        offer = self.by_class.get(each.name)
        if offer is not None:
            return _suits(offer, app)
        accurate = self.accuracies.get(each.variant, 0.0) >= app.accuracy
        return accurate and app.variant in ("", each.variant)

    def unserved(self, load: FunctionLoad, *plans: Plan) -> list[Application]:
        """Applications with requests that none of the plans' instances may answer."""
        running = [each for plan in plans for each in plan.classes if each.replicas]
        return [
            app
            for app in load.apps
            if app.rate_rps > 0 and not any(self.suits(each, app) for each in running)
        ]


def serving(load: FunctionLoad, held: Plan, wanted: Plan) -> Plan:
    """A plan that is held, with what the wanted one has for applications that it does not serve.

    Args:
        load: Of the function.
        held: In force, or wanted a while ago.
        wanted: Now.
    """
    if held is wanted or not wanted.variants:
        return held
    offers = _Offers.of(held, wanted)
    unserved = offers.unserved(load, held)
    needed = {
        each.name: each
        for each in wanted.classes
        if each.replicas and any(offers.suits(each, app) for app in unserved)
    }
    if not needed:
        return held
    there = {each.name: each for each in held.classes} | needed
    served = {app.name for app in unserved if not app.chooses}
    known = {offer.name for offer in held.variants}
    return replace(
        held,
        classes=tuple(there.values()),
        routes=_routes(held.routes, wanted.routes, served, there.keys()),
        variants=(*held.variants, *(o for o in wanted.variants if o.name not in known)),
    )


def lacks_room(load: FunctionLoad, held: Plan, wanted: Plan) -> bool:
    """Whether requests wait for an instance that neither plan has, though there could be one.

    So a reduction is to make room for it.
    """
    if not wanted.variants:
        return False
    offers = _Offers.of(held, wanted)
    waiting = offers.unserved(load, held, wanted)
    return any(_suits(offer, app) for app in waiting for offer in wanted.variants)


def _suits(offer: OnOffer, app: Application) -> bool:
    return (
        app.variant in ("", offer.variant)
        and offer.accuracy >= app.accuracy
        and offer.latency_s <= app.slo_s
        and offer.cost <= app.cost
    )


def _routes(
    held: Sequence[Route], wanted: Iterable[Route], served: set[str], classes: Iterable[str]
) -> tuple[Route, ...]:
    """Those that are held, and the wanted ones of applications that are served only now."""
    names = set(classes)
    new = {
        route.app: route
        for route in wanted
        if route.app in served and names.issuperset(route.weights)
    }
    return (*(route for route in held if route.app not in new), *new.values())
