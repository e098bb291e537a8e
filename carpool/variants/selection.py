"""Which variant serves a request that says what it needs: INFaaS's getVariant (ATC'21, Alg. 1).

Of the variants that answer as accurately, as soon and as cheaply as asked:

1. one with an Active instance, the cheapest, of equals the quickest, on its least loaded instance;
2. else one that no instance runs, the one that would answer first, loading included;
3. else none: then the closest that there is, for the caller to ask again.

Overloaded and Interfered instances get nothing. The paper takes any Active variant that fits; the
cheapest is ours, so that what is asked for costs no more than it must. A request path looks this
up for every request, so the variants are kept in order (`first_fit`); numbers are by profile, and
what runs is told as it changes.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

from carpool.variants.first_fit import FirstFit
from carpool.variants.instance_states import State

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Choice", "Profile", "Requirements", "Selection"]

_HARDLY = 1e-12


class Requirements(NamedTuple):
    """What a request needs.

    Attributes:
        latency_s: It is to be answered within so many seconds.
        accuracy: At least so accurately.
        cost: For at most so much.
    """

    latency_s: float = math.inf
    accuracy: float = 0.0
    cost: float = math.inf


class Profile(NamedTuple):
    """What selection knows of a variant.

    Attributes:
        name: Of the variant.
        accuracy: Share of answers that are right.
        latency_s: Seconds that a batch takes.
        cost: Of a request.
        load_s: Seconds until an instance that is not there could begin.
    """

    name: str
    accuracy: float
    latency_s: float
    cost: float = 0.0
    load_s: float = 0.0

    @property
    def start_s(self) -> float:
        """Seconds from nothing to an answer."""
        return self.load_s + self.latency_s


class Choice(NamedTuple):
    """What a request gets.

    Attributes:
        fits: The variant that serves it; None: none does.
        instance: The least loaded of its Active instances; None: one has to be loaded first.
        closest: Where none fits, the variant that differs least from what was asked for.
    """

    fits: Profile | None
    instance: str | None = None
    closest: Profile | None = None


class _Instances:
    """The instances of one variant; the Active ones in a heap by their loads.

    Entries of the heap that are no longer true are dropped when they come to the top.
    """

    __slots__ = ("_heap", "_loads", "_states")

    def __init__(self) -> None:
        self._states: dict[str, State] = {}
        self._loads: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def note(self, name: str, state: State, load: float) -> None:
        """An instance is in this state, with so much to do; Inactive: it is gone."""
        if state is State.INACTIVE:
            self._states.pop(name, None)
            self._loads.pop(name, None)
            return
        if len(self._heap) > 2 * len(self._states) + 2:
            self._heap = [(self._loads[each], each) for each in self._loads if self._active(each)]
            heapq.heapify(self._heap)
        self._states[name], self._loads[name] = state, load
        if state is State.ACTIVE:
            heapq.heappush(self._heap, (load, name))

    def least_loaded(self) -> str | None:
        """The Active one with the least to do, of equals the first by name."""
        heap = self._heap
        while heap:
            load, name = heap[0]
            if self._active(name) and self._loads[name] == load:
                return name
            heapq.heappop(heap)
        return None

    def _active(self, name: str) -> bool:
        return self._states.get(name) is State.ACTIVE

    def __len__(self) -> int:
        return len(self._states)


class Selection:
    """The variants of one application.

    Args:
        profiles: All of them, with their own names.
    """

    def __init__(self, profiles: Sequence[Profile]) -> None:
        by_cost = sorted(profiles, key=lambda p: (p.cost, p.latency_s, p.name))
        by_start = sorted(profiles, key=lambda p: (p.start_s, p.cost, p.name))
        self._active = _Order(by_cost, lambda p: (p.latency_s, -p.accuracy), present=False)
        self._inactive = _Order(by_start, lambda p: (-p.accuracy, p.cost))
        self._cheapest = _Order(by_cost, lambda p: (p.latency_s, -p.accuracy))
        by_latency = sorted(profiles, key=lambda p: (p.latency_s, p.cost, p.name))
        self._quickest = _Order(by_latency, lambda p: (-p.accuracy, p.cost))
        by_accuracy = sorted(profiles, key=lambda p: (-p.accuracy, p.cost, p.name))
        self._most_accurate = _Order(by_accuracy, lambda p: (p.latency_s, p.cost))
        self._accuracies = sorted({profile.accuracy for profile in profiles})
        self._latencies_s = sorted({profile.latency_s for profile in profiles})
        self._costs = sorted({profile.cost for profile in profiles})
        self._instances = {profile.name: _Instances() for profile in profiles}
        self._runs: dict[str, State] = dict.fromkeys(self._instances, State.INACTIVE)

    def note(self, variant: str, instance: str, state: State, load: float = 0.0) -> None:
        """An instance of a variant is in this state, with so much to do; Inactive: it is gone."""
        instances = self._instances[variant]
        instances.note(instance, state, load)
        if instances.least_loaded() is not None:
            runs = State.ACTIVE
        else:
            runs = State.OVERLOADED if len(instances) else State.INACTIVE
        if runs is not self._runs[variant]:
            self._runs[variant] = runs
            self._active.set(variant, present=runs is State.ACTIVE)
            self._inactive.set(variant, present=runs is State.INACTIVE)

    def choose(self, required: Requirements) -> Choice:
        """Algorithm 1."""
        profile = self.fits(required)
        if profile is None:
            return Choice(None, closest=self.closest(required))
        return Choice(profile, self._instances[profile.name].least_loaded())

    def fits(self, required: Requirements) -> Profile | None:
        """The variant that Algorithm 1 chooses; None: none fits."""
        profile = self._active.first(required.latency_s, -required.accuracy)
        if profile is not None and profile.cost <= required.cost:
            return profile
        profile = self._inactive.first(-required.accuracy, required.cost)
        return profile if profile is not None and profile.start_s <= required.latency_s else None

    def would_fit(self, required: Requirements) -> Profile | None:
        """The cheapest that fits if it runs, however that is; None: none does."""
        profile = self._cheapest.first(required.latency_s, -required.accuracy)
        return profile if profile is not None and profile.cost <= required.cost else None

    def snapped(self, required: Requirements) -> Requirements:
        """The same in figures that variants have: it fits whatever this fits, and nothing else."""
        at = bisect_left(self._accuracies, required.accuracy)
        return Requirements(
            _at_most(self._latencies_s, required.latency_s),
            self._accuracies[at] if at < len(self._accuracies) else required.accuracy,
            _at_most(self._costs, required.cost),
        )

    def closest(self, required: Requirements) -> Profile | None:
        """The variant for which one of the three has to be changed least; none if there is none.

        Where changing one does not help, the quickest of those that are accurate enough, or else
        the most accurate.
        """
        latency_s, accuracy, cost = required
        changes = [
            (_more(found, required), found)
            for found in (
                self._quickest.first(-accuracy, cost),
                self._most_accurate.first(latency_s, cost),
                self._cheapest.first(latency_s, -accuracy),
            )
            if found is not None
        ]
        if changes:
            return min(changes)[1]
        return self._quickest.first(-accuracy, math.inf) or self._most_accurate.first(
            math.inf, math.inf
        )


class _Order:
    """Profiles in an order of preference, of which the first within two limits is asked for."""

    __slots__ = ("_fit", "_numbers", "_profiles")

    def __init__(
        self,
        profiles: Sequence[Profile],
        measures: Callable[[Profile], tuple[float, float]],
        *,
        present: bool = True,
    ) -> None:
        self._profiles = profiles
        self._numbers = {profile.name: number for number, profile in enumerate(profiles)}
        self._fit = FirstFit([measures(p) for p in profiles], None if present else ())

    def first(self, most: float, second_most: float) -> Profile | None:
        number = self._fit.first(most, second_most)
        return None if number is None else self._profiles[number]

    def set(self, name: str, *, present: bool) -> None:
        (self._fit.put if present else self._fit.remove)(self._numbers[name])


def _at_most(known: list[float], most: float) -> float:
    at = bisect_right(known, most)
    return known[at - 1] if at else most


def _more(profile: Profile, required: Requirements) -> float:
    """By which part what was asked for would have to change, the three added up."""
    latency = max(profile.latency_s / max(required.latency_s, _HARDLY) - 1, 0.0)
    accuracy = max(required.accuracy - profile.accuracy, 0.0) / max(required.accuracy, _HARDLY)
    cost = max(profile.cost / max(required.cost, _HARDLY) - 1, 0.0)
    return latency + accuracy + cost
