"""Which variants should run, as numbers: what there is to choose from, what runs, what is needed.

INFaaS's program (ATC'21, section 4.2): of each option ``v`` there are ``N_v`` instances and ``d_v``
are added or removed, so that

    sum of Cost(d_v) is least,  Cost = C_v (d_v + lambda T_v max(d_v, 0))
    sum of Q_v (N_v + d_v) >= load + slack

with ``C`` per second, ``T`` seconds to load and ``Q`` requests per second. Here a task has several
needs, one an application, as one that asks for little accuracy can be served by what another needs.
An instance gives its time to needs in parts; what all of it is worth may differ from need to need.
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
    """Instances of one variant.

    Attributes:
        rate_rps: ``Q``.
        cost: ``C``, of one for a second.
        load_s: ``T``.
        cpu: Cores of one.
        gpu: Percent of a GPU of one.
    """

    rate_rps: float
    cost: float
    load_s: float = 0.0
    cpu: float = 0.0
    gpu: float = 0.0


class Need(NamedTuple):
    """What one application needs.

    Attributes:
        rate_rps: Requests per second, with what is held in reserve.
        worth: How many of them an instance of each option takes; 0: it is not good enough.
    """

    rate_rps: float
    worth: tuple[float, ...]

    def lacking(self, taken_rps: float) -> float:
        """What is not taken of it."""
        lacking = self.rate_rps - taken_rps
        return lacking if lacking > _ROUNDING * self.rate_rps else 0.0


@dataclass(frozen=True)
class Task:
    """What is to be decided.

    Attributes:
        options: What instances may be.
        running: How many of each there are.
        needs: What they are needed for.
        loading: ``lambda``, per second: what a second of loading costs, in seconds of running.
        room: Cores and percent of GPUs for all instances, those that run included.
        most: So many instances of all options at most.
    """

    options: tuple[Option, ...]
    running: Counts
    needs: tuple[Need, ...]
    loading: float = 0.0
    room: tuple[float, float] = (math.inf, math.inf)
    most: float = math.inf

    def change_cost(self, counts: Counts) -> float:
        """What the program minimises: the cost of going from what runs to this."""
        return sum([self.cost_of(option, count) for option, count in enumerate(counts)])

    def cost_of(self, option: int, count: int) -> float:
        """The part of it that is for one option: it does not depend on the others."""
        chosen, more = self.options[option], count - self.running[option]
        loading = self.loading * chosen.load_s * more if more > 0 else 0.0
        return chosen.cost * (more + loading)

    def fits(self, counts: Counts) -> bool:
        """Whether there is room for so many."""
        within = self._cores(counts) <= self.room[0] + _ROUNDING
        within = within and self._gpu(counts) <= self.room[1] + _ROUNDING
        return within and sum(counts) <= self.most

    def within_reach(self) -> Task:
        """The same with no more room than all of its options together could ever use.

        So a task is the same one whatever others do elsewhere, as long as there is room.
        """
        counts = [
            there
            + sum(
                [math.ceil(need.rate_rps / w) for need in self.needs if (w := need.worth[option])]
            )
            for option, there in enumerate(self.running)
        ]
        cores, gpu = self.room
        room = min(cores, self._cores(counts)), min(gpu, self._gpu(counts))
        return replace(self, room=room)

    def _cores(self, counts: Sequence[int]) -> float:
        return sum([o.cpu * n for o, n in zip(self.options, counts, strict=True) if n])

    def _gpu(self, counts: Sequence[int]) -> float:
        return sum([o.gpu * n for o, n in zip(self.options, counts, strict=True) if n])

    @cached_property
    def by_choice(self) -> list[int]:
        """The numbers of the needs, those with the fewest options first."""
        return sorted(range(len(self.needs)), key=lambda n: sum(map(bool, self.needs[n].worth)))

    @cached_property
    def _by_demand(self) -> list[int]:
        """The numbers of the options, those that the fewest needs can use first."""

        def wanted(option: int) -> int:
            return sum(bool(need.worth[option]) for need in self.needs)

        return sorted(range(len(self.options)), key=wanted)

    @cached_property
    def _by_merit(self) -> list[list[int]]:
        """For each need the options, those first that are worth the most to it beside others."""
        best = [max(need.worth[o] for need in self.needs) or 1.0 for o in range(len(self.options))]
        return [
            sorted(self._by_demand, key=lambda option: -need.worth[option] / best[option])
            for need in self.needs
        ]

    def taken(
        self, need: Need, left: list[float], order: Sequence[int] | None = None
    ) -> list[float]:
        """How many instances of each option work for a need, which are taken out of ``left``.

        Args:
            need: Whose turn it is.
            left: What is not taken yet.
            order: Of the options; None: those that the fewest needs can use first.
        """
        own = [0.0] * len(left)
        lacking = need.rate_rps
        for option in self._by_demand if order is None else order:
            if left[option] > 0 and need.worth[option] and lacking > 0:
                own[option] = min(left[option], lacking / need.worth[option])
                left[option] -= own[option]
                lacking -= own[option] * need.worth[option]
        return own

    def solution(self, counts: Counts, *, well: bool = False) -> Solution:
        """These instances, shared among the needs; the need with the least choice goes first.

        Args:
            counts: How many of each option.
            well: Where something is missing, have each need take first what is worth the most to
                it beside others, and see whether that does.
        """
        found = self._shared(counts, [None] * len(self.needs))
        if well and any(self.missing(found)):
            return self._shared(counts, self._by_merit)
        return found

    def _shared(self, counts: Counts, orders: Sequence[Sequence[int] | None]) -> Solution:
        left = [float(count) for count in counts]
        shares: list[list[float]] = [[]] * len(self.needs)
        for number in self.by_choice:
            shares[number] = self.taken(self.needs[number], left, orders[number])
        return Solution(counts, shares)

    def missing(self, solution: Solution) -> list[float]:
        """Of each need the requests per second that nobody takes."""
        return [
            need.lacking(sum([part * each for part, each in zip(own, need.worth, strict=True)]))
            for need, own in zip(self.needs, solution.shares, strict=True)
        ]


class Solution(NamedTuple):
    """What is decided.

    Attributes:
        counts: Instances of each option.
        shares: Of each need, how many instances of each option work for it.
    """

    counts: Counts
    shares: list[list[float]]
