"""Estimates how long batches wait for an instance, and how many instances are needed.

The exact law (`batch_law`) has an instance for every batch at once. With only ``n`` of them, a
batch may wait. Each phase is treated as Poisson arrivals at the rate expected during an execution
that begins in it, as phases mostly last longer than executions. In each of them, batches leave at
the rate over the resulting mean size; a batch waits with the probability of Erlang's C, for an
exponential time with Erlang's mean times half the sum of the squared coefficients of variation of
gaps and execution times (Allen and Cunneen, see Bolch et al., 2006, 6.3.3). Full batches arrive as
regularly as sums of their requests' gaps, which the variation of gaps accounts for.

This is a conservative estimate: batches of a window arrive more evenly than at random, and one that
waits grows meanwhile. It determines the number of instances. If batches wait at all, latencies are
predicted by a weighted sample (`busy_law`), or for single requests of constant execution time by an
exact law (`single_law`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from carpool.arrivals.map_counts import Counting, matrices
from carpool.arrivals.processes import Poisson
from scaler.policies.batch.batch_law import BatchLaw
from scaler.policies.batch.busy_law import BusyLaw
from scaler.policies.batch.single_law import SingleLaw
from scaler.policies.common.erlang import enough, waiting_share

if TYPE_CHECKING:
    from carpool.arrivals.map_counts import Markovian
    from carpool.arrivals.processes import Times
    from scaler.policies.batch.batch_law import Service

__all__ = ["LimitedInstances", "least_instances"]

_POINTS = 12  # points that represent an exponential distribution
_MOST = 1 << 20  # instances at most
_NEVER = 2e-4  # share of waiting batches below which none is assumed to wait
_FULL = 0.97  # utilization from which on queues count as unbounded


@dataclass(frozen=True, slots=True)
class _Phase:
    """Batches that leave while the arrivals are in one phase.

    Attributes:
        share: Share of all requests.
        busy: Concurrent executions with enough instances.
        exec_s: Mean execution time in seconds.
        variation: Half the sum of the squared variations of their gaps and times.
        full: Concurrent executions if all batches are full.
    """

    share: float
    busy: float
    exec_s: float
    variation: float
    full: float = 0.0


class LimitedInstances:
    """Batches of one law on a limited number of instances.

    Args:
        process: Arrival process of requests.
        law: Law of the batches.
        service: Execution times of batches.

    Attributes:
        busiest: Concurrent executions in the busiest phase: at least as many instances are needed
            to keep up in it.
    """

    def __init__(self, process: Markovian, law: BatchLaw, service: Service) -> None:
        self._process = process
        self._law = law
        self._service = service
        self._phases = list(_phases(process, law, service))
        self.busiest = max(phase.busy for phase in self._phases)

    def late(self, objective_s: float, instances: int) -> float:
        """Return the share of requests whose latency exceeds ``objective_s``."""
        delays, weights = self._delays(instances)
        service = self._service.delayed(delays, weights)
        return float(self._law.late([objective_s], service)[0])

    def late_anyway(self, objective_s: float) -> float:
        """Return the share of late requests with an instance for every batch at once."""
        return float(self._law.late([objective_s], self._service)[0])

    def delayed(self, instances: int) -> Service:
        """Return execution times of batches plus the wait for an instance by Erlang's C."""
        return self._service.delayed(*self._delays(instances))

    def law(self, instances: int) -> BusyLaw | SingleLaw | None:
        """Return the law of latencies with ``instances``; None if queues may grow without bound."""
        full = max(phase.full for phase in self._phases) / instances
        if full >= _FULL or not np.isfinite(self._service.seconds[: self._law.size]).all():
            return None
        seconds = self._service.seconds[0]
        if self._law.size == 1 and (seconds == seconds[0]).all():
            return SingleLaw(self._process, float(seconds[0]), instances, full)
        return BusyLaw(self._process, self._law, self._service, instances, full)

    def expected(self, instances: int) -> BusyLaw | SingleLaw | None:
        """Return `law`; None if there is none, or if too few batches wait for it to matter."""
        waits = 1 - self._delays(instances)[1][0]
        return self.law(instances) if waits > _NEVER else None

    def _delays(self, instances: int) -> tuple[Times, Times]:
        """Return possible seconds until an instance is free, and their probabilities."""
        middles = (np.arange(_POINTS) + 0.5) / _POINTS
        exponential = -np.log1p(-middles)
        exponential /= exponential.mean()
        seconds, weights = [np.zeros(1)], [np.zeros(1)]
        for phase in self._phases:
            waits = waiting_share(instances, phase.busy)
            spare = instances - phase.busy
            mean_s = phase.exec_s / spare * phase.variation if spare > 0 else math.inf
            seconds.append(np.full(_POINTS, mean_s) * exponential)
            weights.append(np.full(_POINTS, phase.share * waits / _POINTS))
            weights[0] += phase.share * (1 - waits)
        return np.concatenate(seconds), np.concatenate(weights)


def least_instances(crowd: LimitedInstances, objective_s: float, miss: float) -> int:
    """Return the fewest instances with which at most a share ``miss`` of requests is late.

    Args:
        crowd: The batches to execute.
        objective_s: Latency that is in time.
        miss: Share of requests that may be late.

    Returns:
        If more are late with any number, a number with which hardly any batch waits.
    """
    if crowd.late_anyway(objective_s) > miss:
        return min(max(1, enough(crowd.busiest)), _MOST)
    high = max(1, math.ceil(crowd.busiest))
    low = 0
    while high < _MOST and crowd.late(objective_s, high) > miss:
        low, high = high, high + max(1, high // 4)
    high = min(high, _MOST)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if crowd.late(objective_s, middle) > miss else (low, middle)
    return high


def _phases(process: Markovian, law: BatchLaw, service: Service) -> list[_Phase]:
    seconds = service.mean_s()[: law.size]
    longest_s = float(seconds.max())
    d0, d1 = matrices(process)
    stationary = np.ones(1) if isinstance(process, Poisson) else process.stationary()
    shares = stationary * d1.sum(axis=1)
    total = shares.sum()
    if total <= 0:
        return [_Phase(1.0, 0.0, longest_s, 0.5)]
    rates = _expected_rates(d0, d1, longest_s)
    phases = []
    for share, rate in zip((shares / total).tolist(), rates.tolist(), strict=True):
        here = BatchLaw(Poisson(rate), law.size, law.window_s)
        exec_s = float(here.sizes @ seconds)
        spread = float(here.sizes @ (service.seconds[: law.size] ** 2 @ service.weights))
        times = max(spread / exec_s**2 - 1, 0.0)
        gaps = 1 / here.mean_size  # a sum of as many exponential gaps
        busy = rate / here.mean_size * exec_s
        full = rate / law.size * float(seconds[-1])
        phases.append(_Phase(share, busy, exec_s, (gaps + times) / 2, full))
    return phases


def _expected_rates(d0: Times, d1: Times, exec_s: float) -> Times:
    """Return the mean requests per second over ``exec_s``, by the phase at its beginning."""
    changes = Counting(d0 + d1, np.zeros_like(d1), 1)
    rates: Times = changes.at([exec_s]).spent[0, 0] @ d1.sum(axis=1) / exec_s
    return rates
