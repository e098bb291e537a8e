"""The groups of one function, each with its instance and windows: HarmonyBatch's provisioning.

Applications are put in the order of their objectives. A price list says what every group of
neighbours would cost (`pooling`, `offers`), a rule divides the order (`grouping`), and what it
chose is settled exactly (`settling`). So many groups are priced at once that dynamic programming
over all of them takes less time than the paper's merging of pairs.
"""

from __future__ import annotations

import math
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from scaler.core.harmony.grouping import best_cuts, two_stages
from scaler.core.harmony.offers import offers
from scaler.core.harmony.pooling import pooled
from scaler.core.harmony.settling import Group, Member, Settling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.latency import LatencyModel
    from scaler.core.arrivals.processes import Times
    from scaler.core.cost import Billing
    from scaler.core.harmony.grouping import Cut
    from scaler.core.snapshot import AppLoad

__all__ = ["Grouping", "Provisioner", "members_of"]

Grouping: TypeAlias = Literal["optimal", "two-stages", "apart", "together"]

_MEMBERS = 160  # objectives that are told apart; beyond that neighbours count as the tightest
_LEAST_RPS = 1e-9  # of an application that sends nothing, so that it has a place all the same
_TRIED = 2  # configurations that are settled at once
_TRIED_MOST = 32  # and in all
_WORTH = 1.03  # a group that is no dearer than this, relative to the next estimate, is taken


class Provisioner:
    """Finds groups for one model, billing rule and share of late requests.

    Args:
        model: How long batches take.
        billing: What that costs.
        max_batch: Most requests in a batch.
        miss: Share of an application's requests that may be late.
        waiting: Share of batches that may find all instances busy.

    Attributes:
        fastest_s: About the tightest objective that any instance can meet.
        settling: Settles one group.
    """

    def __init__(
        self, model: LatencyModel, billing: Billing, max_batch: int, miss: float, waiting: float
    ) -> None:
        self._offers = offers(model, billing, max_batch, miss)
        self.fastest_s = self._offers.fastest_s
        self.settling = Settling(model, billing, miss, waiting)

    def groups(self, members: Sequence[Member], grouping: Grouping) -> list[Group]:
        """The groups, the tightest first; without those whose objective no instance meets.

        Args:
            members: By objective, ascending.
            grouping: By dynamic programming, by the paper's two stages, each alone, or all in one.
        """
        members = [member for member in members if member.slo_s >= self.fastest_s]
        if not members:
            return []
        slos = np.array([member.slo_s for member in members])
        rates, opens = pooled(np.array([member.rate_rps for member in members]), slos)
        found: list[Group] = []
        for first, last in self._cuts(slos, rates, opens, grouping):
            load = (rates[first, last], opens[first, last])
            found += self._settled(members[first : last + 1], *load)
        return found

    def _cuts(self, slos: Times, rates: Times, opens: Times, grouping: Grouping) -> list[Cut]:
        count = len(slos)
        if grouping == "apart":
            return [(place, place) for place in range(count)]
        if grouping == "together":
            return [(0, count - 1)]
        inside = np.triu_indices(count)
        costs = np.full((count, count), math.inf)
        places = np.zeros((count, count), dtype=np.intp)
        costs[inside], places[inside] = self._offers.cheapest(
            rates[inside], opens[inside], slos[inside[0]]
        )
        if grouping == "optimal":
            return best_cuts(rates, costs)
        on_gpu = self._offers.on_gpu[places]
        return two_stages(rates, costs, on_gpu, lambda at: self._offers.knee_rps(float(slos[at])))

    def _settled(self, members: Sequence[Member], rate: float, opens: float) -> list[Group]:
        """One group; its members apart, where an estimate was too hopeful for all of them."""
        load = (np.array([value]) for value in (rate, opens, members[0].slo_s))
        costs = self._offers.costs(*load)[0]
        order = costs.argsort(kind="stable")[: min(_TRIED_MOST, int(np.isfinite(costs).sum()))]
        best: Group | None = None
        for start in range(0, len(order), _TRIED):
            # What is left would have to be cheaper than it was estimated to be.
            if best and best.cost <= costs[order[start]] * _WORTH:
                break
            tried = [self._offers.listed[place] for place in order[start : start + _TRIED]]
            found = self.settling.cheapest(members, tried)
            if found and (best is None or found.cost < best.cost):
                best = found
        if best:
            return [best]
        if len(members) == 1:
            return []
        return [
            group
            for member in members
            for group in self._settled([member], member.rate_rps, member.slo_s)
        ]


def members_of(apps: Sequence[AppLoad]) -> list[Member]:
    """Applications by objective, those of one objective together."""
    ordered = sorted(apps, key=lambda app: (app.slo_s, app.name))
    alike = [list(same) for _, same in groupby(ordered, key=lambda app: app.slo_s)]
    if len(alike) > _MEMBERS:
        ends = [len(alike) * number // _MEMBERS for number in range(_MEMBERS + 1)]
        alike = [
            [app for same in alike[begin:end] for app in same] for begin, end in pairwise(ends)
        ]
    return [
        Member(
            tuple(app.name for app in same),
            same[0].slo_s,
            max(math.fsum(app.rate_rps for app in same), _LEAST_RPS),
        )
        for same in alike
    ]
