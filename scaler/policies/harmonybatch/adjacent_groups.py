"""Groups of neighbours in the order of objectives: estimated all at once, settled when needed.

The price list is off by a few percent, and settling a group exactly takes a thousand times as long
as estimating it. So the best division is searched for in rounds: groups that are not settled yet
count as slightly cheaper than estimated; those of the best division are settled; and so on, until
the best division consists of settled groups. It is then the cheapest of all divisions, unless a
group is cheaper than its estimate by more than that.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from scaler.policies.harmonybatch.grouping import best_cuts
from scaler.policies.harmonybatch.pooling import Pooled, pooled

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from carpool.arrivals.processes import Times
    from scaler.policies.harmonybatch.grouping import Cut
    from scaler.policies.harmonybatch.offers import Offers
    from scaler.policies.harmonybatch.settling import Group, Member, Settling

__all__ = ["AdjacentGroups"]

_HOPE = 0.05  # share by which a group may be cheaper than estimated
_SETTLED_MOST = 16  # groups that are settled to find the best division
_TRIED, _TRIED_MOST = 2, 32  # configurations that are settled for a group: at least, at most
_WORTH = 1.03  # highest cost of an accepted group, relative to the next estimate


class AdjacentGroups:
    """Applications in the order of their objectives, of which neighbours may share instances.

    Args:
        members: By objective, the tightest first; at least one.
        offers: Estimated costs of the configurations.
        settling: Settles one group.
    """

    def __init__(self, members: Sequence[Member], offers: Offers, settling: Settling) -> None:
        self._members = members
        self._offers = offers
        self._settling = settling
        rates, slos = np.array([(member.rate_rps, member.slo_s) for member in members]).T
        self._pooled = pooled(rates, slos)
        self._known: dict[Cut, Group | None] = {}
        self._tried = _TRIED

    def __len__(self) -> int:
        return len(self._members)

    def knee_rps(self, place: int) -> float:
        """Return `Offers.knee_rps` for the objective of a member."""
        return self._offers.knee_rps(self._members[place].slo_s)

    def estimated(self) -> tuple[Times, Times, npt.NDArray[np.bool_]]:
        """Return estimates for the groups of members i to j, all of shape ``(n, n)``.

        Returns:
            Rates; costs per request, infinite if no instance meets the objective; and whether the
            cheapest configuration is on a GPU.
        """
        count = len(self)
        inside = np.triu_indices(count)
        costs = np.full((count, count), math.inf)
        places = np.zeros((count, count), dtype=np.intp)
        among = Pooled(*(column[inside] for column in self._pooled))
        costs[inside], places[inside] = self._offers.cheapest(among)
        return self._pooled.rates_rps, costs, self._offers.on_gpu[places]

    def divided(self, *, thoroughly: bool = True) -> list[Cut]:
        """Return the cheapest division by the estimates, then also by more optimistic ones.

        Args:
            thoroughly: Whether to continue with more optimistic ones, which takes about as long
                again.
        """
        self._tried = _TRIED if thoroughly else 1
        rates, costs, _ = self.estimated()
        settled = np.full_like(costs, math.inf)
        for hope in (0.0, _HOPE) if thoroughly else (0.0,):
            hoped = np.where(np.isinf(settled), costs * (1 - hope), settled)
            while len(self._known) < _SETTLED_MOST:
                cuts = best_cuts(rates, hoped)
                if self._known.keys() >= set(cuts):
                    break
                for cut in cuts:
                    hoped[cut] = settled[cut] = self._cost(cut)
        return best_cuts(rates, settled)

    def served(self, cut: Cut) -> list[Group]:
        """Return the group, or its members apart if the estimate was too optimistic."""
        first, last = cut
        group = self._settled(cut)
        # Estimates of single requests are exact.
        if group and group.configuration.batch > 1 and self._tried < _TRIED:
            group = self._cheapest(cut, _TRIED, group)
        assured = self._settling.assured(group) if group else None
        if assured:
            return [assured]
        if first == last:
            return []
        alone = (self.served((place, place)) for place in range(first, last + 1))
        return [group for groups in alone for group in groups]

    def _cost(self, cut: Cut) -> float:
        """Return the cost per request; 0 for an application that cannot be served even alone."""
        group = self._settled(cut)
        alone = cut[0] == cut[1]
        return group.cost if group else 0.0 if alone else math.inf

    def _settled(self, cut: Cut) -> Group | None:
        if cut not in self._known:
            self._known[cut] = self._cheapest(cut, self._tried)
        return self._known[cut]

    def _cheapest(self, cut: Cut, tried: int, best: Group | None = None) -> Group | None:
        """Return the group on the cheapest of several configurations.

        Args:
            cut: Its members.
            tried: Minimum number of configurations to settle.
            best: The group settled on the first of them, if known.
        """
        members = self._members[cut[0] : cut[1] + 1]
        one = Pooled(*(np.array([column[cut]]) for column in self._pooled))
        costs = self._offers.costs(one)[0]
        order = costs.argsort(kind="stable")[: min(_TRIED_MOST, int(np.isfinite(costs).sum()))]
        for number, place in enumerate(order.tolist()):
            # The others could be cheaper only if their estimates were too high.
            if best and number >= tried and best.cost <= costs[place] * _WORTH:
                break
            configuration, about_s = self._offers.configuration(place)
            if best and best.configuration == configuration:
                continue
            group = self._settling.on(members, configuration, about_s)
            if group and (best is None or group.cost < best.cost):
                best = group
        return best
