"""The exact law of batches that leave when full or after a window, under any Markovian arrivals.

Theory of operation
-------------------
A batch begins with its first request and leaves when it has ``size`` requests or ``window_s`` after
the first, whichever is earlier; an instance then takes it at once. With ``p`` for the phase as a
batch begins, ``P_n(t)`` and ``I_n(t)`` for the matrices of `map_counts`, B and T for size and
window, and 1 for a column of ones:

* P(batch of k) = p P_{k-1}(T) 1 for k < B, the rest is full (BATCH, SC'20, Eq. 6 and 12).
* The phase as a batch leaves is ``sum_{n<B-1} P_n(T) + I_{B-2}(T) D1``; until the next request it
  changes by ``(-D0)^-1 D1``. ``p`` is the stationary vector of the product. The paper does not
  specify it, and its code guesses it from how long the phases last.
* Of a batch that leaves at T with k requests, those that arrived before T - w wait longer than w;
  of a full one, those that arrived more than w before the last. So the mean number of requests in
  batches of k that wait longer than w is ``sum_j (1+j) p P_j(T-w) P_{k-1-j}(w) 1`` for k < B, and
  for full ones ``sum_j (1+j) p I_j(T-w) P_{B-2-j}(w) D1 1``. Divided by the mean size it is the
  share of requests. This replaces Eq. 9 of the paper, which is no distribution if a batch takes
  less than T longer for one request more.

Nothing here depends on instances: that one is always free is the paper's assumption, and `queueing`
computes the effect of a limited number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np

from carpool.arrivals.map_counts import Counting, matrices
from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from carpool.arrivals.map_counts import Counted, Markovian
    from carpool.arrivals.processes import Times

__all__ = ["BatchLaw", "Service", "first_phases", "quantiles"]

_PARTS, _PASSES = 24, 5  # parts into which each pass of a search for a quantile cuts the interval
_ROUNDING = 1e-9  # relative error of windows, which are rounded to a grid
_DIGIT = 1e-12  # relative error of a difference of times
_EVEN = np.linspace(0, 1, 257)
_GEOMETRIC = np.logspace(-6, 0, 401)


@dataclass(frozen=True, slots=True, eq=False)
class Service:
    """Execution times of batches by size.

    Attributes:
        seconds: Possible times, shape (sizes, points), from size 1 on.
        weights: Probability of each, shape (points,); they add up to 1.
    """

    seconds: Times
    weights: Times

    @classmethod
    def fixed(cls, seconds: Sequence[float] | Times) -> Self:
        """Return constant execution times: ``seconds[k - 1]`` for a batch of k."""
        return cls(np.asarray(seconds, dtype=float)[:, None], np.ones(1))

    def mean_s(self) -> Times:
        """Return the mean execution time by size, shape (sizes,)."""
        mean: Times = self.seconds @ self.weights
        return mean

    def delayed(self, delays_s: Times, weights: Times) -> Service:
        """Return the times with an independent delay added, of these values and weights."""
        seconds = self.seconds[:, :, None] + delays_s
        both = self.weights[:, None] * weights
        return Service(seconds.reshape(len(seconds), -1), both.ravel())


class BatchLaw:
    """The law of batches of one process, size and window.

    Args:
        process: Arrival process of requests.
        size: Requests in a full batch, at least 1.
        window_s: Seconds after its first request at which a batch leaves at the latest.

    Raises:
        ConfigError: The size is below 1, or the window is negative or not finite.

    Attributes:
        size, window_s: As given.
    """

    def __init__(self, process: Markovian, size: int, window_s: float) -> None:
        problems = Problems()
        if size < 1:
            problems.add("size", size, "a whole number of at least 1")
        if not 0 <= window_s < math.inf:
            problems.add("window_s", window_s, "a number of seconds of at least 0")
        problems.raise_if_any()
        self.size = size
        self.window_s = window_s
        self._counting = Counting(*matrices(process), size)

    @cached_property
    def first_phase(self) -> Times:
        """Probability of each phase as a batch begins, shape (phases,)."""
        levels = max(self.size - 1, 1)
        counted = self._at_end
        within, spent = counted.within[:, :levels], counted.spent[:, :levels]
        phases: Times = first_phases(self._counting, within, spent)[0, self.size - 1]
        return phases

    @cached_property
    def sizes(self) -> Times:
        """Share of batches with 1, 2 and so on requests, shape (size,)."""
        partial = self.first_phase @ self._at_end.within[0].sum(axis=-1)[: self.size - 1].T
        return np.append(partial, max(1.0 - float(partial.sum()), 0.0))

    @property
    def mean_size(self) -> float:
        """Mean number of requests in a batch."""
        return float(self.sizes @ np.arange(1, self.size + 1))

    def late(self, times_s: Sequence[float] | Times, service: Service | None = None) -> Times:
        """Return the share of requests whose latency exceeds each of these times.

        Args:
            times_s: Seconds, shape (times,).
            service: Execution times for all sizes up to ``size``; None for zero, so that the
                latency is the wait.

        Returns:
            Shape (times,); exact to five digits, by interpolation.
        """
        service = service or Service.fixed(np.zeros(self.size))
        seconds = service.seconds[: self.size]
        times = np.asarray(times_s, dtype=float)[:, None, None]
        # A request that is just in time must not count as late because of rounding.
        left = times - seconds + _DIGIT * abs(times)
        waits, ended_s = np.empty(left.shape), self.window_s * (1 - _ROUNDING)
        for number, (everything, requests) in enumerate(
            zip(self._all_requests, self._waiting, strict=True)
        ):
            here = left[:, number]
            tabulated = np.interp(here, self.waits_s, requests)
            waits[:, number] = np.where(here < ended_s, tabulated, 0.0)
            waits[:, number][here < 0] = everything
        share: Times = (waits @ service.weights).sum(axis=1) / self.mean_size
        return share.clip(0.0, 1.0)

    def quantiles(self, shares: Sequence[float] | Times, service: Service | None = None) -> Times:
        """Return the latencies in seconds at these shares of requests, shape (shares,)."""
        service = service or Service.fixed(np.zeros(self.size))
        finite = service.seconds[: self.size][np.isfinite(service.seconds[: self.size])]
        most_s = (float(finite.max(initial=0.0)) + self.window_s) * (1 + _ROUNDING)
        return quantiles(lambda times_s: self.late(times_s, service), shares, most_s)

    @cached_property
    def _at_end(self) -> Counted:
        return self._counting.at([self.window_s])

    @cached_property
    def _all_requests(self) -> Times:
        """Mean number of requests per batch that are in batches of each size, shape (size,)."""
        return self.sizes * np.arange(1, self.size + 1)

    @cached_property
    def waits_s(self) -> Times:
        """Times up to the window, also dense near 0, where fast arrivals fill batches."""
        return np.union1d(_EVEN, _GEOMETRIC) * self.window_s

    @cached_property
    def _waiting(self) -> Times:
        return self.waiting(self.first_phase)

    def waiting(self, first_phase: Times) -> Times:
        """Return how many requests in batches of each size wait longer than each of `waits_s`.

        Args:
            first_phase: Probability that a batch begins in each phase; need not add up to 1.

        Returns:
            Shape (size, waits).
        """
        before, after = self._around
        waited = np.arange(1, self.size + 1)[:, None]
        begun = np.einsum("i,xnij->xnj", first_phase, before.within) * waited
        filling = np.einsum("i,xnij->xnj", first_phase, before.spent) * waited
        idle, filled = after.sum(axis=-1), after @ self._counting.d1.sum(axis=1)
        probability = np.zeros((self.size, len(self.waits_s)))
        for last in range(self.size - 1):
            probability[last] = (begun[:, : last + 1] * idle[:, last::-1]).sum(axis=(1, 2))
        if self.size > 1:
            probability[-1] = (filling[:, :-1] * filled[:, -2::-1]).sum(axis=(1, 2))
        return probability

    @cached_property
    def _around(self) -> tuple[Counted, Times]:
        """Arrivals up to each wait before the end of the window, and during the wait."""
        before = self._counting.at(self.window_s - self.waits_s)
        return before, self._counting.at(self.waits_s).within


def quantiles(
    late: Callable[[Times], Times], shares: Sequence[float] | Times, longest_s: float
) -> Times:
    """Return the latencies in seconds at these shares of requests, shape (shares,).

    Args:
        late: Returns the share of requests whose latency exceeds each of some times.
        shares: Shares of requests.
        longest_s: Longest finite latency; the result is ``inf`` if too many requests exceed it.
    """
    allowed = 1.0 - np.asarray(shares, dtype=float)
    never = late(np.array([longest_s]))[0] > allowed
    low, high = np.full(allowed.shape, -1e-9), np.full(allowed.shape, longest_s)
    each = np.arange(len(allowed))
    for _ in range(_PASSES):
        tried = np.linspace(low, high, _PARTS + 1)
        over = late(tried[1:-1].ravel()).reshape(-1, len(allowed)) > allowed
        place = over.sum(axis=0)
        low, high = tried[place, each], tried[place + 1, each]
    return np.where(never, math.inf, high)


def first_phases(counting: Counting, within: Times, spent: Times) -> Times:
    """Return the probability of each phase as a batch begins, for windows and all sizes.

    Args:
        counting: Counts of the process.
        within: As in `Counted` at the windows, shape (windows, levels, phases, phases).
        spent: As in `Counted`, of the same shape.

    Returns:
        Shape (windows, levels + 1, phases), for sizes from 1 to ``levels`` + 1.
    """
    windows, levels, phases, _ = within.shape
    if phases == 1:
        return np.ones((windows, levels + 1, 1))
    leaving = np.empty((windows, levels + 1, phases, phases))
    leaving[:, 0] = np.eye(phases)
    leaving[:, 1:] = np.cumsum(within, axis=1) + spent @ counting.d1
    step = leaving @ np.linalg.solve(-counting.d0, counting.d1)
    # p (step - 1) = 0 with one of the equations, which depends on the others, put to sum(p) = 1.
    equations = np.swapaxes(step - np.eye(phases), -1, -2).copy()
    equations[..., -1, :] = 1.0
    sums = np.zeros((windows, levels + 1, phases, 1))
    sums[..., -1, 0] = 1.0
    weights: Times = np.linalg.solve(equations, sums)[..., 0].clip(0.0)
    shares: Times = weights / weights.sum(axis=-1, keepdims=True)
    return shares
