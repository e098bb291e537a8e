"""The selection of variants as numbers: the options, what runs, and what is needed.

INFaaS's program (ATC'21, section 4.2): of each option ``v`` there are ``N_v`` instances and ``d_v``
are added or removed, so that

    sum of Cost(d_v) is least,  Cost = C_v (d_v + lambda T_v max(d_v, 0))
    sum of Q_v (N_v + d_v) >= load + slack

with ``C`` per second, ``T`` seconds to load and ``Q`` requests per second. Here a task has several
needs, one per application, as an application that accepts low accuracy can be served by instances
that another one needs. An instance divides its time among needs; its throughput may differ from
need to need.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Counts", "Need", "Option", "Solution", "Task"]

Counts = tuple[int, ...]

_ROUNDING = 1e-9


class Option(NamedTuple):
    """A variant that instances may have.

    Attributes:
        rate_rps: ``Q``.
        cost: ``C``, of an instance per second.
        load_s: ``T``.
        cpu: Cores of an instance.
        gpu: Percent of a GPU of an instance.
    """

    rate_rps: float
    cost: float
    load_s: float = 0.0
    cpu: float = 0.0
    gpu: float = 0.0


class Need(NamedTuple):
    """The need of one application.

    Attributes:
        rate_rps: Requests per second, including the reserve.
        served_rps: How many of them an instance of each option serves; 0 if it is unsuitable.
    """

    rate_rps: float
    served_rps: tuple[float, ...]

    def lacking(self, taken_rps: float) -> float:
        """Return the rate that is not served."""
        lacking = self.rate_rps - taken_rps
        return lacking if lacking > _ROUNDING * self.rate_rps else 0.0


@dataclass(frozen=True)
class Task:
    """A planning problem: which instances should run.

    Attributes:
        options: Options for instances.
        running: Number of running instances of each.
        needs: Needs to serve.
        loading: ``lambda``, per second: the cost of a second of loading, in seconds of running.
        capacity: Cores and percent of GPUs for all instances, including running ones.
        most: Maximum number of instances of all options.
    """

    options: tuple[Option, ...]
    running: Counts
    needs: tuple[Need, ...]
    loading: float = 0.0
    capacity: tuple[float, float] = (math.inf, math.inf)
    most: float = math.inf

    def change_cost(self, counts: Counts) -> float:
        """Return the cost of changing from what runs to ``counts``, which the program minimizes."""
        return sum([self.cost_of(option, count) for option, count in enumerate(counts)])

    def cost_of(self, option: int, count: int) -> float:
        """Return one option's part of `change_cost`, which does not depend on the others."""
        chosen, more = self.options[option], count - self.running[option]
        loading = self.loading * chosen.load_s * more if more > 0 else 0.0
        return chosen.cost * (more + loading)

    def fits(self, counts: Counts) -> bool:
        """Return whether these instances fit."""
        within = self._cores(counts) <= self.capacity[0] + _ROUNDING
        within = within and self._gpu(counts) <= self.capacity[1] + _ROUNDING
        return within and sum(counts) <= self.most

    def within_reach(self) -> Task:
        """Return the task with no more capacity than all of its options together could ever use.

        So a task stays equal whatever happens to other functions, as long as they fit.
        """
        counts = [
            there
            + sum(
                [
                    math.ceil(need.rate_rps / w)
                    for need in self.needs
                    if (w := need.served_rps[option])
                ]
            )
            for option, there in enumerate(self.running)
        ]
        cores, gpu = self.capacity
        capacity = min(cores, self._cores(counts)), min(gpu, self._gpu(counts))
        return replace(self, capacity=capacity)

    def _cores(self, counts: Sequence[int]) -> float:
        return sum([o.cpu * n for o, n in zip(self.options, counts, strict=True) if n])

    def _gpu(self, counts: Sequence[int]) -> float:
        return sum([o.gpu * n for o, n in zip(self.options, counts, strict=True) if n])

    @cached_property
    def by_choice(self) -> list[int]:
        """Indices of the needs, those with the fewest options first."""
        return sorted(
            range(len(self.needs)), key=lambda n: sum(map(bool, self.needs[n].served_rps))
        )

    @cached_property
    def _by_demand(self) -> list[int]:
        """Indices of the options, those that the fewest needs can use first."""

        def wanted(option: int) -> int:
            return sum(bool(need.served_rps[option]) for need in self.needs)

        return sorted(range(len(self.options)), key=wanted)

    @cached_property
    def _by_merit(self) -> list[list[int]]:
        """Options for each need, ordered by the rate they serve, relative to the best need."""
        best = [
            max(need.served_rps[o] for need in self.needs) or 1.0 for o in range(len(self.options))
        ]
        return [
            sorted(self._by_demand, key=lambda option: -need.served_rps[option] / best[option])
            for need in self.needs
        ]

    def taken(
        self, need: Need, left: list[float], order: Sequence[int] | None = None
    ) -> list[float]:
        """Return the instances of each option that serve a need, and take them out of ``left``.

        Args:
            need: The need to serve.
            left: Instances that are not taken yet.
            order: Order of the options; None: those that the fewest needs can use first.
        """
        own = [0.0] * len(left)
        lacking = need.rate_rps
        for option in self._by_demand if order is None else order:
            if left[option] > 0 and need.served_rps[option] and lacking > 0:
                own[option] = min(left[option], lacking / need.served_rps[option])
                left[option] -= own[option]
                lacking -= own[option] * need.served_rps[option]
        return own

    def solution(self, counts: Counts, *, well: bool = False) -> Solution:
        """Share these instances among the needs; the need with the fewest options goes first.

        Args:
            counts: Number of instances of each option.
            well: If something is missing, let each need first take what serves most of it
                relative to others, and use that.
        """
        shared = self._shared(counts, [None] * len(self.needs))
        if well and any(self.missing(shared)):
            return self._shared(counts, self._by_merit)
        return shared

    def _shared(self, counts: Counts, orders: Sequence[Sequence[int] | None]) -> Solution:
        left = [float(count) for count in counts]
        shares: list[list[float]] = [[]] * len(self.needs)
        for number in self.by_choice:
            shares[number] = self.taken(self.needs[number], left, orders[number])
        return Solution(counts, shares)

    def missing(self, solution: Solution) -> list[float]:
        """Return the requests per second of each need that are not served."""
        return [
            need.lacking(
                sum([part * each for part, each in zip(own, need.served_rps, strict=True)])
            )
            for need, own in zip(self.needs, solution.shares, strict=True)
        ]


class Solution(NamedTuple):
    """The instances to run.

    Attributes:
        counts: Number of instances of each option.
        shares: For each need, how many instances of each option serve it.
    """

    counts: Counts
    shares: list[list[float]]
