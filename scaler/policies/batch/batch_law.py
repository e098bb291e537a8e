"""Batches that leave full or when a window is over: the exact law, under any Markovian arrivals.

Theory of operation
-------------------
A batch begins with its first request and leaves when it has ``size`` requests or ``window_s`` after
the first, whichever is earlier; then an instance takes it at once. Written ``p`` for the phase as a
batch begins, ``P_n(t)`` and ``I_n(t)`` for the matrices of `map_counts`, B and T for size and
window, 1 for a column of ones:

* P(batch of k) = p P_{k-1}(T) 1 for k < B, the rest is full (BATCH, SC'20, Eq. 6 and 12).
* The phase as a batch leaves is ``sum_{n<B-1} P_n(T) + I_{B-2}(T) D1``; until the next request it
  changes by ``(-D0)^-1 D1``. ``p`` is the stationary vector of the product. The paper leaves it
  open and its code guesses it from how long the phases last.
* Of a batch that leaves at T with k requests, those wait longer than w that came before T - w; of a
  full one, those that came more than w before the last. So the mean number of requests in batches
  of k that wait longer than w is ``sum_j (1+j) p P_j(T-w) P_{k-1-j}(w) 1`` for k < B, and for full
  ones ``sum_j (1+j) p I_j(T-w) P_{B-2-j}(w) D1 1``. Divided by the mean size it is the share of
  requests. This stands for Eq. 9 of the paper, which is no distribution where a batch takes less
  than T longer for one request more.

Nothing here knows instances: that one is free at once is the paper's assumption, and `queueing`
says what it costs where there is no more than a number of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np

from carpool.validation.problems import Problems
from scaler.arrivals.map_counts import Counting, matrices

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scaler.arrivals.map_counts import Counted, Markovian
    from scaler.arrivals.processes import Times

__all__ = ["BatchLaw", "Service", "first_phases", "quantiles"]

_PARTS, _PASSES = 24, 5  # of the interval in which a quantile is searched
_ROUNDING = 1e-9  # of a window, as a grid of windows is rounded
_DIGIT = 1e-12  # of a time
_EVEN = np.linspace(0, 1, 257)
_GEOMETRIC = np.logspace(-6, 0, 401)


@dataclass(frozen=True, slots=True, eq=False)
class Service:
    """How long batches of each size take.

    Attributes:
        seconds: Equally or differently likely times, shape (sizes, points), from size 1 on.
        weights: How likely each is, shape (points,); they add up to 1.
    """

    seconds: Times
    weights: Times

    @classmethod
    def fixed(cls, seconds: Sequence[float] | Times) -> Self:
        """A batch of k takes ``seconds[k - 1]``, always."""
        return cls(np.asarray(seconds, dtype=float)[:, None], np.ones(1))

    def mean_s(self) -> Times:
        """The mean time by size, shape (sizes,)."""
        mean: Times = self.seconds @ self.weights
        return mean

    def delayed(self, delays_s: Times, weights: Times) -> Service:
        """With a delay before, independent of it; it takes these times with these weights."""
        seconds = self.seconds[:, :, None] + delays_s
        both = self.weights[:, None] * weights
        return Service(seconds.reshape(len(seconds), -1), both.ravel())


class BatchLaw:
    """Batches of one process, size and window.

    Args:
        process: How requests come.
        size: Requests in a full batch, at least 1.
        window_s: How long after its first request a batch leaves at the latest.

    Raises:
        ConfigError: a size below 1, or a window that is negative or not finite.

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
        """The phase as a batch begins, shape (phases,)."""
        levels = max(self.size - 1, 1)
        counted = self._at_end
        within, spent = counted.within[:, :levels], counted.spent[:, :levels]
        phases: Times = first_phases(self._counting, within, spent)[0, self.size - 1]
        return phases

    @cached_property
    def sizes(self) -> Times:
        """The share of batches of 1, 2 and so on requests, shape (size,)."""
        partial = self.first_phase @ self._at_end.within[0].sum(axis=-1)[: self.size - 1].T
        return np.append(partial, max(1.0 - float(partial.sum()), 0.0))

    @property
    def mean_size(self) -> float:
        """Requests in a batch."""
        return float(self.sizes @ np.arange(1, self.size + 1))

    @property
    def mean_wait_s(self) -> float:
        """Seconds that a request waits for its batch to leave."""
        held = self.first_phase @ self._at_end.spent[0].sum(axis=-1)[: self.size - 1].T
        return float(held @ np.arange(1, self.size)) / self.mean_size

    def late(self, times_s: Sequence[float] | Times, service: Service | None = None) -> Times:
        """The share of requests whose latency is longer than each of these times.

        Args:
            times_s: Seconds, shape (times,).
            service: What a batch takes, for all sizes up to ``size``; None: no time, so that the
                latency is the wait.

        Returns:
            Shape (times,); exact to five digits, by interpolation.
        """
        service = service or Service.fixed(np.zeros(self.size))
        seconds = service.seconds[: self.size]
        times = np.asarray(times_s, dtype=float)[:, None, None]
        # A request that is in time to the last digit is not late because of how floats round.
        left = times - seconds + _DIGIT * abs(times)
        waits, ended_s = np.empty(left.shape), self.window_s * (1 - _ROUNDING)
        for number, (everybody, requests) in enumerate(
            zip(self._everybody, self._waiting, strict=True)
        ):
            here = left[:, number]
            tabulated = np.interp(here, self.waits_s, requests)
            waits[:, number] = np.where(here < ended_s, tabulated, 0.0)
            waits[:, number][here < 0] = everybody
        share: Times = (waits @ service.weights).sum(axis=1) / self.mean_size
        return share.clip(0.0, 1.0)

    def quantiles(self, shares: Sequence[float] | Times, service: Service | None = None) -> Times:
        """The latencies in seconds that these shares of requests do not exceed, shape (shares,)."""
        service = service or Service.fixed(np.zeros(self.size))
        finite = service.seconds[: self.size][np.isfinite(service.seconds[: self.size])]
        most_s = (float(finite.max(initial=0.0)) + self.window_s) * (1 + _ROUNDING)
        return quantiles(lambda times_s: self.late(times_s, service), shares, most_s)

    @cached_property
    def _at_end(self) -> Counted:
        return self._counting.at([self.window_s])

    @cached_property
    def _everybody(self) -> Times:
        """Requests in batches of each size, in the mean of all batches, shape (size,)."""
        return self.sizes * np.arange(1, self.size + 1)

    @cached_property
    def waits_s(self) -> Times:
        """Times up to the window: dense near 0 too, where full batches come from quick arrivals."""
        return np.union1d(_EVEN, _GEOMETRIC) * self.window_s

    @cached_property
    def _waiting(self) -> Times:
        return self.waiting(self.first_phase)

    def waiting(self, first_phase: Times) -> Times:
        """How many requests of batches of each size wait longer than each of `waits_s`.

        Args:
            first_phase: How likely a batch begins in each phase; need not add up to 1.

        Returns:
            Shape (size, waits).
        """
        before, after = self._around
        waited = np.arange(1, self.size + 1)[:, None]
        begun = np.einsum("i,xnij->xnj", first_phase, before.within) * waited
        filling = np.einsum("i,xnij->xnj", first_phase, before.spent) * waited
        idle, filled = after.sum(axis=-1), after @ self._counting.d1.sum(axis=1)
        found = np.zeros((self.size, len(self.waits_s)))
        for last in range(self.size - 1):
            found[last] = (begun[:, : last + 1] * idle[:, last::-1]).sum(axis=(1, 2))
        if self.size > 1:
            found[-1] = (filling[:, :-1] * filled[:, -2::-1]).sum(axis=(1, 2))
        return found

    @cached_property
    def _around(self) -> tuple[Counted, Times]:
        """What has come up to each wait before the window is over, and what comes in it."""
        before = self._counting.at(self.window_s - self.waits_s)
        return before, self._counting.at(self.waits_s).within


def quantiles(
    late: Callable[[Times], Times], shares: Sequence[float] | Times, longest_s: float
) -> Times:
    """The latencies in seconds that these shares of requests do not exceed, shape (shares,).

    Args:
        late: The share of requests whose latency is longer than each of some times.
        shares: Of requests.
        longest_s: No latency is longer that is finite; where more than may are, it is ``inf``.
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
    """The phase as a batch begins, for windows and all sizes.

    Args:
        counting: Of the process.
        within: As in `Counted` at the windows, shape (windows, levels, phases, phases).
        spent: Likewise.

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
    found: Times = np.linalg.solve(equations, sums)[..., 0].clip(0.0)
    shares: Times = found / found.sum(axis=-1, keepdims=True)
    return shares
