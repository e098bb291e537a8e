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
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Counts", "Need", "Option", "Task"]

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


@dataclass(frozen=True)
class Task:
    """What is to be decided.

    Attributes:
        options: What instances may be.
        running: How many of each there are.
        needs: What they are needed for.
        loading: ``lambda``, per second: what a second of loading costs, in seconds of running.
        free: Cores and percent of GPUs that are left beside what runs.
        most: So many instances of all options at most.
    """

    options: tuple[Option, ...]
    running: Counts
    needs: tuple[Need, ...]
    loading: float = 0.0
    free: tuple[float, float] = (math.inf, math.inf)
    most: float = math.inf

    def change_cost(self, counts: Counts) -> float:
        """What the program minimises: the cost of going from what runs to this."""
        return sum(
            [
                option.cost * (count - before + self.loading * option.load_s * (count - before))
                if count > before
                else option.cost * (count - before)
                for option, count, before in zip(self.options, counts, self.running, strict=True)
            ]
        )

    def fits(self, counts: Counts) -> bool:
        """Whether there is room for so many."""
        if sum(counts) > self.most:
            return False
        cores = gpu = 0.0
        for option, count, before in zip(self.options, counts, self.running, strict=True):
            cores += option.cpu * (count - before)
            gpu += option.gpu * (count - before)
        return cores <= self.free[0] + _ROUNDING and gpu <= self.free[1] + _ROUNDING

    def missing(self, counts: Counts) -> list[float]:
        """Of each need the requests per second that nobody takes."""
        if len(self.needs) == 1:
            (need,) = self.needs
            given = sum([n * w for n, w in zip(counts, need.worth, strict=True)])
            return [_above_zero(need.rate_rps - given, need.rate_rps)]
        shares = self.shares(counts)
        return [
            _above_zero(
                need.rate_rps - sum([p * w for p, w in zip(own, need.worth, strict=True)]),
                need.rate_rps,
            )
            for need, own in zip(self.needs, shares, strict=True)
        ]

    def shares(self, counts: Counts) -> list[list[float]]:
        """Of each need, how many instances of each option work for it.

        Who has the least choice goes first, and takes what the fewest others can use.
        """
        left = [float(count) for count in counts]
        shares = [[0.0] * len(counts) for _ in self.needs]
        for number in self._by_choice:
            need, own = self.needs[number], shares[number]
            lacking = need.rate_rps
            for option in self._by_demand:
                if left[option] and need.worth[option] and lacking > 0:
                    part = min(left[option], lacking / need.worth[option])
                    own[option] = part
                    left[option] -= part
                    lacking -= part * need.worth[option]
        return shares

    @property
    def _by_choice(self) -> list[int]:
        return sorted(range(len(self.needs)), key=lambda n: sum(map(bool, self.needs[n].worth)))

    @property
    def _by_demand(self) -> list[int]:
        def wanted(option: int) -> tuple[int, float]:
            return (
                sum(bool(need.worth[option]) for need in self.needs),
                -self.options[option].rate_rps,
            )

        return sorted(range(len(self.options)), key=wanted)

    def headroom(self) -> float:
        """What runs could take, by what is needed without reserve: the least of all needs."""
        missing = self.missing(self.running)
        if any(missing):
            return min(
                1 - lacking / need.rate_rps
                for lacking, need in zip(missing, self.needs, strict=True)
                if lacking
            )
        return 1.0


def _above_zero(amount: float, of: float) -> float:
    return amount if amount > _ROUNDING * of else 0.0
