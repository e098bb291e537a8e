"""Choice of a variant for a request with requirements: INFaaS's getVariant (ATC'21, Alg. 1).

Of the variants that meet the required accuracy, latency and cost, choose

1. the cheapest one with an Active instance, the quickest of equals;
2. else, of those without any instance, the one with the earliest response, loading included;
3. else none: `Selection.closest` is a variant for the caller to ask for instead.

Overloaded and Interfered instances get no requests. The paper takes any Active variant that fits;
Carpool takes the cheapest, so that a request costs no more than necessary. The choice is made for
every request, so the variants are kept in order (`first_fit`). Figures are from profiles, and
changes of instances are reported by the caller.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

from carpool.variants.first_fit import FirstFit
from carpool.variants.instance_states import State

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

__all__ = ["Profile", "Requirements", "Selection"]

_HARDLY = 1e-12


class Requirements(NamedTuple):
    """Requirements of a request.

    Attributes:
        latency_s: Maximum seconds until the response.
        accuracy: Minimum accuracy.
        cost: Maximum cost.
    """

    latency_s: float = math.inf
    accuracy: float = 0.0
    cost: float = math.inf


class Profile(NamedTuple):
    """Properties of a variant that selection uses.

    Attributes:
        name: Name of the variant.
        accuracy: Share of correct responses.
        latency_s: Seconds that a batch takes.
        cost: Cost of a request.
        load_s: Seconds until a new instance can start work.
    """

    name: str
    accuracy: float
    latency_s: float
    cost: float = 0.0
    load_s: float = 0.0

    @property
    def start_s(self) -> float:
        """Seconds from the start of a new instance to its first response."""
        return self.load_s + self.latency_s


class Selection:
    """Selection among the variants of one application.

    Args:
        profiles: Profiles of all variants, with distinct names.
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

    def note(self, variant: str, states: Collection[State]) -> None:
        """Record the states of all instances of a variant; none at first."""
        self._active.set(variant, present=State.ACTIVE in states)
        self._inactive.set(variant, present=not states)

    def fits(self, required: Requirements) -> Profile | None:
        """Return the variant that Algorithm 1 chooses; None if no variant fits."""
        profile = self._active.first(required.latency_s, -required.accuracy)
        if profile is not None and profile.cost <= required.cost:
            return profile
        profile = self._inactive.first(-required.accuracy, required.cost)
        return profile if profile is not None and profile.start_s <= required.latency_s else None

    def would_fit(self, required: Requirements) -> Profile | None:
        """Return the cheapest variant that would fit if it ran; None if no variant would."""
        profile = self._cheapest.first(required.latency_s, -required.accuracy)
        return profile if profile is not None and profile.cost <= required.cost else None

    def snapped(self, required: Requirements) -> Requirements:
        """Return the requirements snapped to values of variants, which the same variants meet."""
        at = bisect_left(self._accuracies, required.accuracy)
        return Requirements(
            _at_most(self._latencies_s, required.latency_s),
            self._accuracies[at] if at < len(self._accuracies) else required.accuracy,
            _at_most(self._costs, required.cost),
        )

    def closest(self, required: Requirements) -> Profile | None:
        """Return the variant for which a single requirement has to change least.

        If changing a single one does not help, the quickest variant with the required accuracy, or
        else the most accurate one. None if there are no variants.
        """
        latency_s, accuracy, cost = required
        changes = [
            (_more(variant, required), variant)
            for variant in (
                self._quickest.first(-accuracy, cost),
                self._most_accurate.first(latency_s, cost),
                self._cheapest.first(latency_s, -accuracy),
            )
            if variant is not None
        ]
        if changes:
            return min(changes)[1]
        return self._quickest.first(-accuracy, math.inf) or self._most_accurate.first(
            math.inf, math.inf
        )


class _Order:
    """Profiles in an order of preference, to find the first within two limits."""

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
    """Return the sum of the relative changes of the requirements that the profile needs."""
    latency = max(profile.latency_s / max(required.latency_s, _HARDLY) - 1, 0.0)
    accuracy = max(required.accuracy - profile.accuracy, 0.0) / max(required.accuracy, _HARDLY)
    cost = max(profile.cost / max(required.cost, _HARDLY) - 1, 0.0)
    return latency + accuracy + cost
