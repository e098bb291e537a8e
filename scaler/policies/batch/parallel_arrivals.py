"""Draws many independent sample paths of a Markovian arrival process at once.

Each path begins just after an arrival, in one of the phases that the process has then; over all
paths, each phase is as frequent as it should be (systematic sampling). So the first n requests of
all paths together are a fair sample of requests, however long phases last.

Arrivals within a phase are a Poisson process of rate one on the axis of the accumulated rate,
mapped back to time. Phases are drawn stay by stay, for all paths together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from carpool.arrivals.map_counts import matrices
from carpool.arrivals.processes import Poisson

if TYPE_CHECKING:
    import numpy.typing as npt

    from carpool.arrivals.map_counts import Markovian
    from carpool.arrivals.markov import MarkovArrivals
    from carpool.arrivals.processes import Times

    Integers: TypeAlias = npt.NDArray[np.intp]

__all__ = ["Paths", "parallel_arrivals"]

_CHANGES = 4  # changes of phase per request; after that, requests arrive at the mean rate
_SLOWEST = 1e-9  # lowest rate of leaving a phase, relative to the mean rate of requests


class Paths(NamedTuple):
    """Sample paths of arrivals.

    Attributes:
        times_s: Arrival times, ascending, shape (paths, requests).
        phases: Phase of the process after each arrival, of the same shape.
    """

    times_s: Times
    phases: Integers


def parallel_arrivals(
    process: Markovian, paths: int, requests: int, draw: np.random.Generator
) -> Paths:
    """Return ``paths`` sample paths of ``requests`` requests each."""
    accumulated: Times = draw.standard_exponential((paths, requests))
    np.cumsum(accumulated, axis=1, out=accumulated)
    if isinstance(process, Poisson):
        accumulated /= process.rate_rps
        return Paths(accumulated, np.zeros((paths, requests), dtype=np.intp))
    walks = _Walks(process, paths, draw)
    walks.extend(accumulated[:, -1], _CHANGES * requests)
    return walks.paths(accumulated)


class _Walks:
    """Random walks through the phases, one for each path.

    Args:
        process: The process.
        count: Number of walks.
        draw: Source of random numbers.
    """

    def __init__(self, process: MarkovArrivals, count: int, draw: np.random.Generator) -> None:
        d0, d1 = matrices(process)
        self._draw, self._mean_rate = draw, process.mean_rate
        self._within = np.diag(d1)
        leaving = np.hstack([d0 - np.diag(np.diag(d0)), d1 - np.diag(self._within)])
        self._leave_rates = np.maximum(leaving.sum(axis=1), _SLOWEST * self._mean_rate)
        self._ways = np.cumsum(leaving, axis=1) / self._leave_rates[:, None]
        shares = np.cumsum(process.at_arrivals().clip(0.0))
        fair = (np.arange(count) + 0.5) / count * shares[-1]
        self._phases = [np.searchsorted(shares, fair)]
        self._ends_s, self._accumulated = [np.zeros(count)], [np.zeros(count)]
        self._arrives = [np.zeros(count, dtype=bool)]

    def extend(self, until: Times, most: int) -> None:
        """Draw up to ``most`` stays, until each walk has accumulated a rate of ``until``."""
        for _ in range(most):
            if (self._accumulated[-1] >= until).all():
                break
            self._stay()
        lacking = np.maximum(until - self._accumulated[-1], 0.0) + 1.0
        self._end(lacking / self._mean_rate, lacking, np.zeros(len(until), dtype=np.intp))

    def paths(self, accumulated: Times) -> Paths:
        """Return the paths with arrivals at these accumulated rates, shape (paths, requests)."""
        ends = np.array(self._accumulated).T
        ends_s, phases = np.array(self._ends_s).T, np.array(self._phases).T
        stays = np.array(list(map(np.searchsorted, ends[:, 1:], accumulated)))
        times_s = np.array(list(map(np.interp, accumulated, ends, ends_s)))
        after = np.take_along_axis(phases, stays, axis=1)
        arrives = np.array(self._arrives).T
        if not arrives.any():
            return Paths(times_s, after)
        requests = accumulated.shape[1]
        both_s = np.concatenate([times_s, np.where(arrives, ends_s, np.inf)], axis=1)
        order = np.argsort(both_s, axis=1)[:, :requests]
        both = np.concatenate([after, phases], axis=1)
        return Paths(*(np.take_along_axis(each, order, axis=1) for each in (both_s, both)))

    def _stay(self) -> None:
        """Stay in the current phases for random times, and change to the next ones."""
        phase, count = self._phases[-1], len(self._phases[-1])
        length_s = self._draw.standard_exponential(count) / self._leave_rates[phase]
        chance = self._draw.random(count)[:, None]
        way = (chance >= self._ways[phase, :-1]).sum(axis=1)
        self._end(length_s, length_s * self._within[phase], way)

    def _end(self, length_s: Times, accumulated: Times, way: Integers) -> None:
        self._ends_s.append(self._ends_s[-1] + length_s)
        self._accumulated.append(self._accumulated[-1] + accumulated)
        self._phases.append(way % len(self._within))
        self._arrives.append(way >= len(self._within))
