"""Chooses the model variant for a request that states a demand (latency, accuracy, cost).

A plan lists the classes of instances that such requests may go to, each of one variant
(`carpool.plan.OnOffer`), and the runtime reports the state of each instance. A choice is a route,
so that requests for the same class share batches; within a class `dispatch` chooses the instance.
The chosen variant is at least as accurate as demanded, whether or not an instance of it runs; if no
variant is, there is no route.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.variants.selection import Profile, Selection
from sidecar.core.dispatch import Route

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.plan import OnOffer
    from carpool.variants.demand import VariantDemand
    from carpool.variants.instance_states import State

__all__ = ["VariantRouter"]

_DEMANDS_MAX = 4096  # cached
_LABELS_MAX = 64  # demands that are counted separately; further ones are counted together


class VariantRouter:
    """Chooses among the variants of one plan; choosing takes no longer if there are many.

    Args:
        offers: The classes to choose from.

    Attributes:
        variants: The variants by name, each with its classes.
    """

    def __init__(self, offers: Sequence[OnOffer]) -> None:
        self._offers = {offer.name: offer for offer in offers}
        self.variants: dict[str, list[OnOffer]] = {}
        for offer in offers:
            self.variants.setdefault(offer.variant, []).append(offer)
        self._selection = Selection(
            [Profile(o.name, o.accuracy, o.latency_s, o.cost, o.load_s) for o in offers]
        )
        self._states: dict[tuple[str, str], State] = {}
        self._running: set[str] = set()
        self._routes: dict[str, Route] = {}
        self._labels: dict[VariantDemand, str] = {}
        self._labels_in_use: set[str] = set()
        self._chosen: dict[VariantDemand, Profile | None] = {}  # while no state changes

    def offer(self, variant: str) -> OnOffer:
        """Return the first class of ``variant``, for its figures."""
        return self.variants[variant][0]

    def is_running(self, variant: str) -> bool:
        """Return whether there is an instance of ``variant``, in any state."""
        return variant in self._running

    def set_states(self, states: Mapping[tuple[str, str], State]) -> bool:
        """Set the states of all instances, by class and address; return whether any changed."""
        if states == self._states:
            return False
        changed = {name for (name, _), _ in states.items() ^ self._states.items()}
        of_class: dict[str, list[State]] = {n: [] for n in self._offers.keys() & changed}
        for (name, _), state in states.items():
            if name in of_class:
                of_class[name].append(state)
        for name, own in of_class.items():
            self._selection.note(name, own)
        self._states = dict(states)
        self._running = {self._offers[n].variant for n, _ in states if n in self._offers}
        self._chosen.clear()
        return True

    def best_fit(self, demand: VariantDemand) -> Profile | None:
        """Return the class that INFaaS's Algorithm 1 chooses; None if no class fits."""
        if demand not in self._chosen:
            if len(self._chosen) >= _DEMANDS_MAX:
                self._chosen.clear()
            self._chosen[demand] = self._selection.fits(demand.requirements)
        return self._chosen[demand]

    def closest(self, demand: VariantDemand) -> Profile | None:
        """Return the class that comes closest to ``demand``, for when none fits."""
        return self._selection.closest(demand.requirements)

    def would_fit(self, demand: VariantDemand) -> OnOffer | None:
        """Return the cheapest class that would fit if it ran or were not overloaded; else None."""
        profile = self._selection.would_fit(demand.requirements)
        return self._offers[profile.name] if profile else None

    def route(self, demand: VariantDemand) -> Route | None:
        """Return the route of a request with ``demand``; None if no class fits."""
        if demand.variant:
            return self._route(demand.variant)
        best = self.best_fit(demand)
        return self._route(best.name) if best else None

    def label(self, demand: VariantDemand) -> str:
        """Return the application name under which requests with ``demand`` are counted."""
        label = self._labels.get(demand)
        if label is None:
            if len(self._labels) >= _DEMANDS_MAX:
                self._labels.clear()
                self._labels_in_use.clear()
            label = self._coarse(demand).name
            if label not in self._labels_in_use and len(self._labels_in_use) >= _LABELS_MAX:
                label = "*"
            self._labels_in_use.add(label)
            self._labels[demand] = label
        return label

    def _coarse(self, demand: VariantDemand) -> VariantDemand:
        """Return ``demand`` rounded so that only differences that affect the choice remain."""
        if demand.variant:
            return type(demand)(variant=demand.variant)
        snapped = self._selection.snapped(demand.requirements)
        coarse = demand.coarse(0.0, snapped.accuracy, 0.0)
        if self.would_fit(coarse) or not self.would_fit(demand):
            return coarse
        return demand.coarse(*snapped)

    def _route(self, name: str) -> Route | None:
        """Return the route to a class or to all classes of a variant; None if there is neither."""
        route = self._routes.get(name)
        if route is None:
            own = [offer.name for offer in self.variants.get(name, ())]
            if name in self._offers and name not in own:
                own.append(name)
            if not own:
                return None
            route = self._routes[name] = Route(dict.fromkeys(own, 1 / len(own)))
        return route
