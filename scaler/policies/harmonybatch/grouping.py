"""Divides applications, in the order of their objectives, into groups that share instances.

* `two_stages` is HarmonyBatch's Algorithm 1 (IWQoS'24). At first each application is alone. Stage
  one goes through them and adds up the rates of neighbours on CPUs; beyond the knee, the rate from
  which a GPU is cheaper, it merges them if that is cheaper, and continues behind them. Stage two
  merges neighbours of which at least one is on a GPU, as long as that is cheaper.
* `best_cuts` tries every division of the order by dynamic programming.

The cost of a group is a matrix over its first and last application; it is computed elsewhere.
Groups of neighbours are sufficient: a tighter objective never has a longer window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from carpool.arrivals.processes import Times

__all__ = ["Cut", "best_cuts", "two_stages"]

_WORTH = 2e-4  # share of the total cost that one more group must save, as every class is overhead

Cut: TypeAlias = "tuple[int, int]"  # the first and the last application of a group


def best_cuts(rates_rps: Times, costs: Times) -> list[Cut]:
    """Return the cheapest division.

    ``best[j] = min over i of best[i] + cost per second of the group i to j``.

    Args:
        rates_rps: Total rate of applications i to j; shape ``(n, n)``.
        costs: Cost per request of the same; infinite if no instance meets the objective.
    """
    spent = costs * rates_rps
    cuts = _cheapest_cuts(spent)
    # One more group must save a share of the total cost.
    return _cheapest_cuts(spent + _WORTH * sum(float(spent[cut]) for cut in cuts))


def _cheapest_cuts(spent: Times) -> list[Cut]:
    """Return the cheapest division, given the cost per second of applications i to j."""
    count = len(spent)
    best = np.zeros(count + 1)
    begins = np.zeros(count, dtype=np.intp)
    for last in range(count):
        options = best[: last + 1] + spent[: last + 1, last]
        begins[last] = options.argmin()  # the first of equal ones, which is the larger group
        best[last + 1] = options[begins[last]]
    cuts: list[Cut] = []
    last = count - 1
    while last >= 0:
        cuts.append((int(begins[last]), last))
        last = int(begins[last]) - 1
    return cuts[::-1]


def two_stages(
    rates_rps: Times,
    costs: Times,
    on_gpu: npt.NDArray[np.bool_],
    knee_rps: Callable[[int], float],
) -> list[Cut]:
    """Return the division found by Algorithm 1.

    Args:
        rates_rps: Total rate of applications i to j; shape ``(n, n)``.
        costs: Cost per request of the same; infinite if no instance meets the objective.
        on_gpu: Whether the group i to j is cheapest on a GPU; shape ``(n, n)``.
        knee_rps: Returns the knee for the objective of an application.
    """

    def saves(first: Cut, last: Cut) -> bool:
        merged = (first[0], last[1])
        apart = sum(costs[cut] * rates_rps[cut] for cut in _between(groups, first, last))
        return bool(costs[merged] * rates_rps[merged] < apart)

    groups: list[Cut] = [(place, place) for place in range(len(costs))]
    begin = at = 0
    while at < len(groups):  # stage one: neighbours on CPUs
        if on_gpu[groups[at]]:
            begin = at = at + 1
            continue
        together = (groups[begin][0], groups[at][1])
        if at > begin and rates_rps[together] > knee_rps(together[0]):
            if saves(groups[begin], groups[at]):
                groups[begin : at + 1] = [together]
                at = begin
            begin = at + 1
        at += 1
    at = 0
    while at + 1 < len(groups):  # stage two: neighbours, one at least on a GPU
        left, right = groups[at], groups[at + 1]
        if (on_gpu[left] or on_gpu[right]) and saves(left, right):
            groups[at : at + 2] = [(left[0], right[1])]
        else:
            at += 1
    return groups


def _between(groups: list[Cut], first: Cut, last: Cut) -> list[Cut]:
    return groups[groups.index(first) : groups.index(last) + 1]
