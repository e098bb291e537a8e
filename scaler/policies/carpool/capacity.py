"""How many requests per second a number of equal instances take, few of them late.

Theory of operation
-------------------
*Eager*: an instance that is free takes what waits, up to its batch, and never waits for company. So
batches are as large as load makes them: with ``n`` instances and executions of ``a + c k`` seconds
for ``k`` requests, all busy, a batch has ``m = R a / (n - R c)`` requests at a rate ``R``, and one
while instances are free. A request is late in one of two ways.

* It comes while all instances are busy, and none becomes free within ``x``, the longest wait that
  leaves room for the batch that has collected by then. Executions of ``s`` seconds began within the
  last ``s``; none ends within ``x`` if all ``n`` began in the last ``s - x``. Batches begin at
  random, ``R / m`` a second, so that is a Poisson tail (Chernoff's bound), times the probability
  that all are busy (Sakasegawa's approximation of Erlang's C). It is not a matter of even shares:
  batches bunch as buses do, as one that is late is full, and so slower.
* More came for a while than full batches take, and a backlog is longer than the slack. With
  Poisson arrivals that has probability ``exp(-z C w)`` (Lundberg), ``C = n b / s_b`` requests per
  second, ``w`` the slack, ``R (exp(z) - 1) = C z``.

Both are held to half of what may be late. Beside simulated queues the rate is then within five
percent of the highest where an execution takes half the objective or less, and lower where it
takes more.

*Patient*: a batch leaves when it is full, or when its first request has waited ``T``, nine tenths
of what the objective leaves beside a full batch's execution ``s``. So executions cannot bunch: they
begin at least ``T`` apart, but for batches that were full before. All ``n`` instances are busy when
a batch is to leave only if the last ``n`` batches began within ``s`` less the last tenth. If ``k``
of them were full, that is when ``n - k + k b`` requests or more came in that time less ``(n - k)
T``, again a Poisson tail. Each of the others was not filled in ``T``, by fewer than ``b - 1``
requests more, which where ``b`` is 2 has the probability ``exp(-R T)``. The likeliest ``k`` counts.

Of two instances whose executions take two thirds of the objective, or three where they take three
quarters, one is so always free in time, whatever the rate; eager ones may both be busy. Where
executions take half the objective or less, or instances are many, eager ones take as much.

The rate is found by halving, for all options and numbers at once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from scaler.policies.carpool.options import Option

__all__ = ["COUNTS", "capacities", "windows_s"]

COUNTS = np.unique(np.concatenate([np.arange(1, 17), np.geomspace(17, 1024, 32).round()]))
_HALVINGS = 20
_ABOVE = 2.0  # standard deviations of what collects in a gap
_WAITED = 0.9  # of what an objective leaves beside an execution; the rest is for an instance
_FULL = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the last batches


def windows_s(options: Sequence[Option], slo_s: float) -> npt.NDArray[np.float64]:
    """How long the first request of a batch waits for others where batches are patient."""
    return _WAITED * np.array([max(slo_s - option.size.exec_s, 0.0) for option in options])


def capacities(
    options: Sequence[Option], slo_s: float, miss: float, *, patient: bool = False
) -> npt.NDArray[np.float64]:
    """Requests per second of `COUNTS` instances of each option.

    Args:
        options: At least one.
        slo_s: Latency objective, less what a request takes on its way.
        miss: Share of requests that may be late.
        patient: Batches wait for company, as `windows_s` says.

    Returns:
        Shape (options, counts), ascending along the counts.
    """
    batch = np.array([float(option.size.batch) for option in options])[:, None]
    full_s = np.array([option.size.exec_s for option in options])[:, None]
    item_s = np.array([option.item_s for option in options])[:, None]
    law = (_Patient if patient else _Law)(batch, full_s, item_s, COUNTS[None, :], slo_s, miss)
    high = COUNTS[None, :] * batch / full_s
    low = np.zeros_like(high)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        good = law.holds(middle)
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    return np.maximum.accumulate(low, axis=1)


class _Law:
    """Whether rates are taken, for arrays of instances that broadcast."""

    def __init__(
        self,
        batch: npt.NDArray[np.float64],
        full_s: npt.NDArray[np.float64],
        item_s: npt.NDArray[np.float64],
        count: npt.NDArray[np.float64],
        slo_s: float,
        miss: float,
    ) -> None:
        self._batch, self._full_s, self._item_s, self._count = batch, full_s, item_s, count
        self._fixed_s = full_s - item_s * batch
        self._slack_s = np.maximum(slo_s - full_s, 0.0)
        self._slo_s = slo_s
        self._miss = miss / 2
        self._most_rps = count * batch / full_s

    def holds(self, rate_rps: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Whether no more are late than may."""
        return (self._found_busy(rate_rps) <= self._miss) & (self._backlog(rate_rps) <= self._miss)

    def _found_busy(self, rate_rps: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The share that no instance is free for in time."""
        count, fixed_s, item_s = self._count, self._fixed_s, self._item_s
        spare = np.maximum(count - rate_rps * item_s, 1e-9)
        usual = np.clip(rate_rps * fixed_s / spare, 1.0, self._batch)
        exec_s = fixed_s + item_s * usual
        busy = np.minimum(rate_rps * exec_s / (usual * count), 1.0)
        uncovered_s = np.maximum(exec_s - self._longest_gap_s(rate_rps), 0.0)
        return np.asarray(_all_busy(busy, count) * _tail(rate_rps / usual * uncovered_s, count))

    def _longest_gap_s(self, rate_rps: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """How long a request may wait if a batch collects meanwhile, some more than usual."""
        left_s = self._slo_s - self._fixed_s - self._item_s
        even_s = left_s / (1 + rate_rps * self._item_s)
        more = _ABOVE * np.sqrt(rate_rps * np.maximum(even_s, 0.0))
        grown_s = (left_s - self._item_s * more) / (1 + rate_rps * self._item_s)
        return np.maximum(grown_s, self._slack_s)  # no batch is larger than a full one

    def _backlog(self, rate_rps: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The share that comes upon more than is begun within the slack."""
        load = np.clip(rate_rps / self._most_rps, 1e-9, 1 - 1e-9)
        exponent = _lundberg(load)
        slack_s = np.maximum(self._slack_s - 0.5 * self._full_s / self._count, 0.0)
        return np.asarray(
            _all_busy(load, self._count) * np.exp(-exponent * self._most_rps * slack_s)
        )


class _Patient(_Law):
    """The same where batches wait for company."""

    def _found_busy(self, rate_rps: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The likeliest way in which all began within the last execution."""
        window_s = _WAITED * self._slack_s
        began_s = self._full_s - (self._slack_s - window_s)
        unfilled = _at_most(rate_rps * window_s, self._batch - 2)  # its first one, and one to fill
        worst = np.zeros_like(rate_rps)
        for share in _FULL:
            full = share * self._count
            left = self._count - full
            mean = rate_rps * np.maximum(began_s - left * window_s, 0.0)
            found = _likely_tail(mean, left + full * self._batch)
            worst = np.maximum(worst, found * unfilled**left)
        return worst


def _all_busy(
    busy: npt.NDArray[np.float64], count: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Sakasegawa's approximation of Erlang's C, where each instance is busy for such a share."""
    return np.asarray(busy ** (np.sqrt(2 * (count + 1)) - 1))


def _tail(mean: npt.NDArray[np.float64], least: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Chernoff's bound of the probability that a Poisson number is ``least`` or more."""
    below = np.clip(mean, 1e-12, least)
    return np.asarray(np.exp(least - below - least * np.log(least / below)) * (mean > 0))


def _likely_tail(
    mean: npt.NDArray[np.float64], least: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """The same by the approximation of Bahadur and Rao, which is no bound, and nearer to it."""
    spread = np.sqrt(2 * math.pi * least) * (1 - np.minimum(mean / least, 1.0))
    return np.asarray(_tail(mean, least) / np.maximum(spread, 1.0))


def _at_most(
    mean: npt.NDArray[np.float64], most: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Chernoff's bound of the probability that a Poisson number is ``most`` or less."""
    above = np.maximum(mean, np.maximum(most, 1e-12))
    return np.asarray(np.exp(most - above - most * np.log(np.maximum(most, 1e-12) / above)))


def _lundberg(load: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The ``z`` above 0 with ``load (exp(z) - 1) = z``, by Newton's method from above."""
    found = 2 * (1 - load) / load  # the first terms of the series; never below the root
    found = np.minimum(found, 2 * np.log(1 / load) + 2)
    for _ in range(6):
        grown = np.exp(found)
        found = found - (load * (grown - 1) - found) / np.maximum(load * grown - 1, 1e-12)
    return np.asarray(np.maximum(found, 0.0))
