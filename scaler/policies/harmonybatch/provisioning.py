"""The groups of one function, each with its instance and windows: HarmonyBatch's provisioning.

Applications are sorted by their objectives. A price list gives the cost of every group of
neighbours (`pooling`, `offers`), a rule divides the order (`grouping`), and the chosen groups are
settled exactly (`settling`). Groups are priced in such large numbers at once that dynamic
programming over all of them takes less time than the paper's merging of pairs.
"""

from __future__ import annotations

import math
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Literal, TypeAlias

from scaler.policies.harmonybatch.adjacent_groups import AdjacentGroups
from scaler.policies.harmonybatch.grouping import two_stages
from scaler.policies.harmonybatch.offers import offers
from scaler.policies.harmonybatch.settling import Group, Member, Settling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.scaling import Application, Billing, LatencyModel
    from scaler.policies.harmonybatch.grouping import Cut

__all__ = ["Grouping", "Provisioner", "members_of"]

Grouping: TypeAlias = Literal["optimal", "two-stages", "apart", "together"]

_MEMBERS = 160  # most different objectives; beyond that, neighbours get the tightest of theirs
_LEAST_RPS = 1e-9  # rate of an application without requests, so that it is still planned for


class Provisioner:
    """Finds groups for one model, billing rule and share of late requests.

    Args:
        model: Latency model of the function.
        billing: What executions and instances cost.
        max_batch: Maximum number of requests in a batch.
        miss: Share of an application's requests that may be late.
        waiting: Share of batches that may find all instances busy.

    Attributes:
        fastest_s: Approximately the tightest objective that any instance can meet.
        settling: Settles one group.
    """

    def __init__(
        self, model: LatencyModel, billing: Billing, max_batch: int, miss: float, waiting: float
    ) -> None:
        self._offers = offers(model, billing, max_batch, miss)
        self.fastest_s = self._offers.fastest_s
        self.settling = Settling(model, billing, miss, waiting)

    def groups(
        self, members: Sequence[Member], grouping: Grouping, *, thoroughly: bool = False
    ) -> list[Group]:
        """Return the groups, tightest first, without objectives that no instance meets.

        Args:
            members: By objective, ascending.
            grouping: By dynamic programming, by the paper's two stages, each alone, or all in one.
            thoroughly: As in `AdjacentGroups.divided`.
        """
        members = [member for member in members if member.slo_s >= self.fastest_s]
        if not members:
            return []
        adjacent = AdjacentGroups(members, self._offers, self.settling)
        cuts = self._cuts(adjacent, grouping, thoroughly=thoroughly)
        return [group for cut in cuts for group in adjacent.served(cut)]

    def _cuts(self, adjacent: AdjacentGroups, grouping: Grouping, *, thoroughly: bool) -> list[Cut]:
        count = len(adjacent)
        if grouping == "apart":
            return [(place, place) for place in range(count)]
        if grouping == "together":
            return [(0, count - 1)]
        if grouping == "two-stages":
            rates, costs, on_gpu = adjacent.estimated()
            return two_stages(rates, costs, on_gpu, adjacent.knee_rps)
        return adjacent.divided(thoroughly=thoroughly)


def members_of(apps: Sequence[Application]) -> list[Member]:
    """Return the applications by objective, those with the same objective as one member."""
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
