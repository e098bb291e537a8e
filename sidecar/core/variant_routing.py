"""Which class of instances serves a request that says what it needs instead of which model.

A plan lists the classes that requests may choose from (`carpool.plan.OnOffer`), and the runtime
tells how each instance is. A choice is a route, so that requests of the same class share batches;
within a class the dispatch takes the instance that has had the least. Whatever is chosen is at
least as accurate as was asked, whether or not it runs: where nothing is, there is no route.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.variants.instance_states import State
from carpool.variants.selection import Profile, Selection
from sidecar.core.dispatch import Route

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.plan import OnOffer
    from carpool.variants.demand import Demand

__all__ = ["VariantRouter"]

_KEPT = 4096  # demands of which something is remembered
_NAMED = 64  # demands that are counted under names of their own; any more are one


class VariantRouter:
    """Chooses among the classes of one plan; a request costs no more where there are many.

    Args:
        offers: What there is to choose from.

    Attributes:
        variants: What may be asked for by name, each with its classes.
    """

    def __init__(self, offers: Sequence[OnOffer]) -> None:
        self._offers = {offer.name: offer for offer in offers}
        self.variants: dict[str, list[OnOffer]] = {}
        for offer in offers:
            self.variants.setdefault(offer.variant, []).append(offer)
        self._selection = Selection(
            [Profile(o.name, o.accuracy, o.latency_s, o.cost, o.load_s) for o in offers]
        )
        self._seen: dict[tuple[str, str], State] = {}
        self._running: set[str] = set()
        self._routes: dict[str, Route] = {}
        self._names: dict[Demand, str] = {}
        self._counted: set[str] = set()
        self._chosen: dict[Demand, Profile | None] = {}  # as long as nothing changes

    def named(self, variant: str) -> OnOffer:
        """What is known of a variant: of its first class."""
        return self.variants[variant][0]

    def runs(self, variant: str) -> bool:
        """Whether there is an instance of a variant, however it is."""
        return variant in self._running

    def see(self, states: Mapping[tuple[str, str], State]) -> bool:
        """These instances, by class and address, are like this; whether that is news."""
        if states == self._seen:
            return False
        for key in self._seen.keys() - states.keys():
            self._note(*key, State.INACTIVE)
        for key, state in states.items():
            if self._seen.get(key) is not state:
                self._note(*key, state)
        self._seen = dict(states)
        self._running = {self._offers[n].variant for n, _ in states if n in self._offers}
        self._chosen.clear()
        return True

    def fits(self, demand: Demand) -> Profile | None:
        """What Algorithm 1 chooses; None: nothing fits."""
        if demand not in self._chosen:
            if len(self._chosen) >= _KEPT:
                self._chosen.clear()
            self._chosen[demand] = self._selection.fits(demand.asked)
        return self._chosen[demand]

    def closest(self, demand: Demand) -> Profile | None:
        """What comes closest, where nothing fits."""
        return self._selection.closest(demand.asked)

    def would_fit(self, demand: Demand) -> OnOffer | None:
        """The cheapest of what would fit if it ran, or were not overloaded."""
        found = self._selection.would_fit(demand.asked)
        return self._offers[found.name] if found else None

    def route(self, demand: Demand) -> Route | None:
        """Where a request may go; None: nothing fits."""
        if demand.variant:
            return self._route(demand.variant)
        fits = self.fits(demand)
        return self._route(fits.name) if fits else None

    def name(self, demand: Demand) -> str:
        """What the demand is counted under."""
        name = self._names.get(demand)
        if name is None:
            if len(self._names) >= _KEPT:
                self._names.clear()
                self._counted.clear()
            name = self._coarse(demand).name
            if name not in self._counted and len(self._counted) >= _NAMED:
                name = "*"
            self._counted.add(name)
            self._names[demand] = name
        return name

    def _coarse(self, demand: Demand) -> Demand:
        if demand.variant:
            return type(demand)(variant=demand.variant)
        snapped = self._selection.snapped(demand.asked)
        coarse = demand.coarse(0.0, snapped.accuracy, 0.0)
        if self.would_fit(coarse) or not self.would_fit(demand):
            return coarse
        return demand.coarse(*snapped)

    def _note(self, name: str, address: str, state: State) -> None:
        if name in self._offers:
            self._selection.note(name, address, state)

    def _route(self, name: str) -> Route | None:
        """To a class, or to all classes of a variant."""
        route = self._routes.get(name)
        if route is None:
            own = [offer.name for offer in self.variants.get(name, ())]
            if name in self._offers and name not in own:
                own.append(name)
            if not own:
                return None
            route = self._routes[name] = Route(dict.fromkeys(own, 1 / len(own)))
        return route
