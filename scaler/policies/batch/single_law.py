"""The exact law of single requests whose execution times are all the same.

Theory of operation
-------------------
With n instances and an execution time D, all requests in execution now are done D later, and
meanwhile as many of those that wait now were started as there are instances. So with A for the
arrivals in between, the number that waits becomes ``Z' = max(Z + A - n, 0)`` (Crommelin, 1932).
This is a Markov chain over Z and the phase of the arrivals, with the matrices of `map_counts`.

From ``e`` before the arrival of a request until ``k D - e`` after it, with ``0 < e <= D``, an
instance that is never idle starts k requests. So it waits longer than ``k D - e`` if those that
waited ``e`` before and those that came since are ``k n`` or more (Franx, Operations Research
Letters 29, 2001).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from carpool.arrivals.map_counts import Counting, matrices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.arrivals.map_counts import Markovian
    from carpool.arrivals.processes import Times
    from scaler.policies.batch.parallel_arrivals import Integers

__all__ = ["SingleLaw"]

_TAIL = 12.0  # the part exp(-2 * this) of the queues of Poisson arrivals is neglected
_NEVER = 1e-7  # share of times with longer queues that are neglected
_LEVELS = 64  # levels are rounded up to a multiple, so that processes share cached results
_LARGEST = 4096  # equations to solve at most
_STEPS = 32  # steps per execution time
_ROUNDING = 1e-9  # relative


class SingleLaw:
    """Latencies of single requests.

    Args:
        process: Arrival process of requests.
        exec_s: Execution time in seconds, above 0.
        instances: Number of instances, at least 1.
        load: Utilization in the busiest phase, below 1.

    Attributes:
        mean_size: 1; there are no batches.
        step_s: Seconds between two of the waits below.
        in_time: Share of requests that wait at most 0, 1 and so on steps, and after whose arrival
            the process is in each phase, shape (waits, phases).
    """

    mean_size = 1.0

    def __init__(self, process: Markovian, exec_s: float, instances: int, load: float) -> None:
        d0, d1 = matrices(process)
        queue = _stationary(process, exec_s, instances, load)
        turns = math.ceil(len(queue) / instances) + 1
        counting = Counting(d0, d1, _rounded(turns * instances))
        before_s = exec_s * np.arange(_STEPS, 0, -1) / _STEPS
        fewer = np.cumsum(counting.at(before_s).within, axis=1)
        rows = []
        for most in instances * np.arange(1, turns + 1) - 1:
            waiting = queue[: most + 1]
            others = fewer[:, most - np.arange(len(waiting))]
            rows.append(np.einsum("za,ezab->eb", waiting, others) @ d1)
        in_time = np.concatenate(rows)
        self.in_time: Times = np.maximum.accumulate(in_time) / in_time[-1].sum()
        self.step_s = exec_s / _STEPS
        self._exec_s = exec_s

    def late(self, times_s: Sequence[float] | Times) -> Times:
        """Return the share of requests whose latency exceeds each of these times."""
        waits_s = np.asarray(times_s, dtype=float) * (1 + _ROUNDING) - self._exec_s
        in_time = np.interp(waits_s, *self._law(), left=0.0)
        late: Times = (1.0 - in_time).clip(0.0)
        return late

    def quantiles(self, shares: Sequence[float] | Times) -> Times:
        """Return the latencies in seconds at these shares of requests, shape (shares,)."""
        waits_s, in_time = self._law()
        latencies_s: Times = np.interp(shares, in_time, waits_s) + self._exec_s
        return latencies_s

    def steps_waited(self, times_s: Times) -> Integers:
        """Return the steps that each request waits at one instance, free at first, rounded up.

        Args:
            times_s: Arrival times on independent paths, ascending, shape (paths, requests).
        """
        excess = np.zeros_like(times_s)
        np.subtract(self._exec_s, np.diff(times_s, axis=1), out=excess[:, 1:])
        np.cumsum(excess, axis=1, out=excess)
        excess -= np.minimum.accumulate(excess, axis=1)
        excess /= self.step_s
        return np.ceil(excess, out=excess).astype(np.intp)

    def _law(self) -> tuple[Times, Times]:
        """Return waits in seconds, and the share of requests that wait no longer."""
        in_time: Times = self.in_time.sum(axis=1)
        return np.linspace(0.0, (len(in_time) - 1) * self.step_s, len(in_time)), in_time


def _stationary(process: Markovian, exec_s: float, instances: int, load: float) -> Times:
    """Return how often 0, 1 and so on requests wait, by the phase, shape (levels, phases)."""
    d0, d1 = matrices(process)
    levels = math.ceil(_TAIL / (1 - load))
    while True:
        counting = Counting(d0, d1, _rounded(levels + instances))
        queue = _solved(counting.at([exec_s]).within[0], instances, levels)
        levels *= 2
        if queue[-1].sum() < _NEVER or levels * len(d0) > _LARGEST:
            return queue


def _solved(arrivals: Times, instances: int, levels: int) -> Times:
    """Return the stationary law of the chain, cut off at ``levels``.

    Args:
        arrivals: Probabilities of 0, 1 and so on arrivals in an execution time, by the phase before
            and after, shape (numbers, phases, phases).
        instances: Number of instances.
        levels: Number of levels.
    """
    phases = arrivals.shape[-1]
    number = np.arange(levels)[None, :] - np.arange(levels)[:, None] + instances
    step = np.where((number >= 0)[..., None, None], arrivals[number.clip(0)], 0.0)
    fewer = np.cumsum(arrivals, axis=0)
    idle = instances - np.arange(levels)
    step[:, 0] = np.where((idle >= 0)[:, None, None], fewer[idle.clip(0)], 0.0)
    square = step.transpose(0, 2, 1, 3).reshape(levels * phases, -1)
    equations = (square / square.sum(axis=1, keepdims=True)).T - np.eye(len(square))
    sums = np.zeros(len(square))
    equations[-1], sums[-1] = 1.0, 1.0
    law = np.linalg.solve(equations, sums).clip(0.0)
    shares: Times = (law / law.sum()).reshape(levels, phases)
    return shares


def _rounded(levels: int) -> int:
    return math.ceil(levels / _LEVELS) * _LEVELS
