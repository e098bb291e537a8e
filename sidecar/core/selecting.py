"""Which class of instances serves a request that says what it needs instead of which model.

A plan lists the classes that requests may choose from (`carpool.plan.OnOffer`), and the shell tells
how each instance is. A choice is a route, so that whoever is given the same class shares batches;
within a class the dispatch takes the instance that has had the least. Whatever is chosen is at
least as accurate as was asked, whether or not it runs: where nothing is, there is no route.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from carpool.variants.instance_states import State
from carpool.variants.selection import Profile, Selection
from sidecar.core.dispatch import Route

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.plan import OnOffer
    from carpool.variants.demand import Demand
    from carpool.variants.selection import Choice

__all__ = ["Selecting"]

_KEPT = 4096  # demands of which something is remembered
_NAMED = 64  # demands that are counted under names of their own; any more are one


class Selecting:
    """Chooses among the classes of one plan.

    Args:
        offers: What there is to choose from.
    """

    def __init__(self, offers: Sequence[OnOffer]) -> None:
        self._offers = {offer.name: offer for offer in offers}
        self._selection = Selection(
            [Profile(o.name, o.accuracy, o.latency_s, o.cost, o.load_s) for o in offers]
        )
        self._seen: dict[tuple[str, str], State] = {}
        self._routes: dict[str, Route] = {}
        self._names: dict[Demand, str] = {}
        self._choices: dict[Demand, Choice] = {}  # as long as nothing changes

    @property
    def variants(self) -> list[str]:
        """The names of what may be asked for by name."""
        return list({offer.variant: None for offer in self._offers.values()})

    def named(self, variant: str) -> OnOffer:
        """What is known of a variant: of its first class."""
        return next(offer for offer in self._offers.values() if offer.variant == variant)

    def runs(self, variant: str) -> bool:
        """Whether there is an instance of a variant, however it is."""
        return any(self._offers[n].variant == variant for n, _ in self._seen if n in self._offers)

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
        self._choices.clear()
        return True

    def choose(self, demand: Demand) -> Choice:
        """What fits, or what comes closest: Algorithm 1."""
        choice = self._choices.get(demand)
        if choice is None:
            if len(self._choices) >= _KEPT:
                self._choices.clear()
            choice = self._choices[demand] = self._selection.choose(demand.asked)
        return choice

    def would_fit(self, demand: Demand) -> OnOffer | None:
        """The quickest to start of what would fit if it ran, or were not overloaded."""
        asked = demand.asked
        fitting = [
            offer
            for offer in self._offers.values()
            if offer.accuracy >= asked.accuracy
            and offer.latency_s <= asked.latency_s
            and offer.cost <= asked.cost
        ]
        return min(fitting, key=lambda offer: (offer.load_s, offer.cost), default=None)

    def route(self, demand: Demand) -> Route | None:
        """Where a request may go; None: nothing fits."""
        if demand.variant:
            return self._route(demand.variant)
        fits = self.choose(demand).fits
        return self._route(fits.name) if fits else None

    def name(self, demand: Demand) -> str:
        """What the demand is counted under."""
        name = self._names.get(demand)
        if name is None:
            coarse = self._coarse(demand)
            known = set(self._names.values())
            name = coarse.name if len(known) < _NAMED or coarse.name in known else "*"
            if len(self._names) >= _KEPT:
                self._names.clear()
            self._names[demand] = name
        return name

    def _coarse(self, demand: Demand) -> Demand:
        if demand.variant:
            return type(demand)(variant=demand.variant)
        asked = demand.asked
        fitting = [
            offer
            for offer in self._offers.values()
            if offer.accuracy >= asked.accuracy and offer.cost <= asked.cost
        ]
        return demand.coarse(
            min([offer.latency_s for offer in fitting], default=math.inf),
            min([offer.accuracy for offer in fitting], default=asked.accuracy),
            min([offer.cost for offer in fitting], default=math.inf),
        )

    def _note(self, name: str, address: str, state: State) -> None:
        if name in self._offers:
            self._selection.note(name, address, state)

    def _route(self, name: str) -> Route | None:
        """To a class, or to all classes of a variant."""
        if name not in self._routes:
            own = [o.name for o in self._offers.values() if name in (o.name, o.variant)]
            if not own:
                return None
            self._routes[name] = Route(dict.fromkeys(own, 1 / len(own)))
        return self._routes[name]
