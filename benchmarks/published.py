"""HarmonyBatch's provisioning as published, with every batch assumed full, for comparison.

It follows Eq. 5 to 11 of the paper (IWQoS'24) as the authors' artefact evaluates them: a window is
the objective less the maximum execution time, a batch may be as large as ``floor(R T) + 1``, and
every batch is assumed to have that size. ``T`` is the exact mean window. The actual cost of such a
plan is what `scaler.policies.harmonybatch.settling.Settling.having` computes for its groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from scaler.policies.harmonybatch.grouping import best_cuts, two_stages
from scaler.policies.harmonybatch.pooling import pooled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.latency import Configuration, LatencyModel
    from carpool.scaling import Billing
    from scaler.policies.harmonybatch.grouping import Cut
    from scaler.policies.harmonybatch.settling import Member

__all__ = ["Published", "PublishedGroup"]

_MAXIMUM = 0.99  # quantile that the authors' runtime calls the maximum
_KNEES = np.geomspace(0.01, 1000, 120)


@dataclass(frozen=True, slots=True)
class PublishedGroup:
    """A range of applications, with instance, windows, and cost per request in full batches."""

    first: int
    last: int
    configuration: Configuration
    windows_s: tuple[float, ...]
    cost: float


class Published:
    """The published provisioning for one model.

    Args:
        model: Execution times of batches.
        billing: Billing rule.
        max_batch: Largest batch size.
    """

    def __init__(self, model: LatencyModel, billing: Billing, max_batch: int = 32) -> None:
        self._configurations = list(model.configurations(max_batch))
        self._batch = np.array([each.batch for each in self._configurations])
        self._on_gpu = np.array([each.gpu > 0 for each in self._configurations])
        self._max_s = np.array(
            [model.predict(*each, _MAXIMUM) or math.inf for each in self._configurations]
        )
        self._cost = np.array(
            [
                billing.execution(model.resources(*each), model.predict(*each) or math.inf)
                / each.batch
                for each in self._configurations
            ]
        )

    def groups(
        self, members: Sequence[Member], how: Literal["optimal", "two-stages", "apart"]
    ) -> list[PublishedGroup]:
        """Group members by dynamic programming, by the paper's two stages, or each alone.

        The members are ordered by objective.
        """
        slos = np.array([member.slo_s for member in members])
        rates, opens, _, _ = pooled(np.array([member.rate_rps for member in members]), slos)
        count = len(members)
        costs, places = np.full((count, count), math.inf), np.zeros((count, count), dtype=np.intp)
        for first, last in zip(*np.triu_indices(count), strict=True):
            cut = (first, last)
            places[cut], costs[cut] = self._best(rates[cut], opens[cut], slos[first])
        cuts: list[Cut] = [(place, place) for place in range(count)]
        if how == "optimal":
            cuts = best_cuts(rates, costs)
        elif how == "two-stages":
            cuts = two_stages(rates, costs, self._on_gpu[places], lambda at: self._knee(slos[at]))
        return [self._group(members, cut, int(places[cut]), float(costs[cut])) for cut in cuts]

    def _best(self, rate_rps: float, pooled_s: float, slo_s: float) -> tuple[int, float]:
        window_s = pooled_s - self._max_s
        filled = np.floor(rate_rps * np.maximum(window_s, 0.0) + 1e-9) + 1 >= self._batch
        costs = np.where(filled & (self._max_s <= slo_s), self._cost, math.inf)
        place = int(costs.argmin())
        return place, float(costs[place])

    def _knee(self, slo_s: float) -> float:
        on_gpu = [self._on_gpu[self._best(rate, slo_s, slo_s)[0]] for rate in _KNEES]
        return float(_KNEES[on_gpu.index(True)]) if any(on_gpu) else math.inf

    def _group(
        self, members: Sequence[Member], cut: Cut, place: int, cost: float
    ) -> PublishedGroup:
        first, last = cut
        windows_s = tuple(
            float(member.slo_s - self._max_s[place]) for member in members[first : last + 1]
        )
        return PublishedGroup(first, last, self._configurations[place], windows_s, cost)
