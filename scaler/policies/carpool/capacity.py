"""Compute how many requests per second equal instances can serve with few of them late.

Theory of operation
-------------------
*Eager*: a free instance takes the waiting requests, up to its batch size, and never waits for more.
So batches are as large as the load makes them. With ``n`` instances, all busy, and executions of
``a + c k`` seconds for ``k`` requests, a batch has ``m = R a / (n - R c)`` requests at a rate
``R``. While instances are free, it has one request. A request can be late in one of two ways.

* It arrives while all instances are busy, and none becomes free within ``x``, the longest wait that
  leaves time to execute the batch collected by then. The executions in progress, of ``s`` seconds,
  began within the last ``s`` seconds; none ends within ``x`` if all ``n`` began in the last
  ``s - x``. Batches begin at random, ``R / m`` per second, so the probability is a Poisson tail
  (Chernoff's bound) times the probability that all are busy (Sakasegawa's approximation of Erlang's
  C). Even shares cannot be assumed: batches bunch as buses do, because a late one is fuller and
  therefore slower.
* More requests arrived for a while than full batches can take, and the backlog is longer than the
  slack. With Poisson arrivals this has probability ``exp(-z C w)`` (Lundberg), where
  ``C = n b / s_b`` requests per second, ``w`` is the slack, and ``R (exp(z) - 1) = C z``.

Each probability is limited to half of the share that may be late. Compared with simulated queues,
the rate is then within five percent of the highest where an execution takes half the objective or
less, and lower where it takes more.

*Patient*: a batch leaves when it is full, or when its first request has waited ``T``, nine tenths
of the time that the objective leaves after a full batch's execution ``s``. Executions then cannot
bunch: except for batches that filled up earlier, they begin at least ``T`` apart. When a batch is
due to leave, all ``n`` instances are busy only if the last ``n`` batches began within ``s`` less
the remaining tenth. If ``k`` of them were full, this requires at least ``n - k + k b`` requests in
that time less ``(n - k) T``, again a Poisson tail. Each of the others was not filled within ``T``,
because fewer than ``b - 1`` further requests arrived; for ``b = 2`` this has the probability
``exp(-R T)``. The likeliest ``k`` counts.

So of two instances whose executions take two thirds of the objective, or of three where they take
three quarters, one is always free in time, whatever the rate, whereas eager ones may all be busy.
Where executions take half the objective or less, or there are many instances, eager ones take as
much.

The rate is found by bisection, for all options and numbers of instances at once.
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
_ABOVE = 2.0  # standard deviations by which a batch may exceed the usual size
_WAITED = 0.9  # part of the slack that patient batches wait; the rest is to find an instance
_FULL = (0.0, 0.25, 0.5, 0.75, 1.0)  # shares of the last batches that were full


def windows_s(options: Sequence[Option], slo_s: float) -> npt.NDArray[np.float64]:
    """Return how long the first request of each option's batches waits if batches are patient."""
    return _WAITED * np.array([max(slo_s - option.size.exec_s, 0.0) for option in options])


def capacities(
    options: Sequence[Option], slo_s: float, miss: float, *, patient: bool = False
) -> npt.NDArray[np.float64]:
    """Return the requests per second that `COUNTS` instances of each option can serve.

    Args:
        options: At least one.
        slo_s: Latency objective, less the time a request takes outside queue and execution.
        miss: Share of requests that may be late.
        patient: Whether batches wait for more requests, for the times of `windows_s`.

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
    """Tests whether instances can serve rates, for broadcastable arrays."""

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
        """Return whether the share of late requests stays within the limit."""
        busy, backlog = self._busy_too_long(rate_rps), self._backlog(rate_rps)
        return (busy <= self._miss) & (backlog <= self._miss)

    def _busy_too_long(self, rate_rps: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the share of requests for which no instance becomes free in time."""
        count, fixed_s, item_s = self._count, self._fixed_s, self._item_s
        spare = np.maximum(count - rate_rps * item_s, 1e-9)
        usual = np.clip(rate_rps * fixed_s / spare, 1.0, self._batch)
        exec_s = fixed_s + item_s * usual
        busy = np.minimum(rate_rps * exec_s / (usual * count), 1.0)
        uncovered_s = np.maximum(exec_s - self._longest_gap_s(rate_rps), 0.0)
        return np.asarray(_all_busy(busy, count) * _tail(rate_rps / usual * uncovered_s, count))

    def _longest_gap_s(self, rate_rps: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return how long a request may wait while a somewhat larger batch than usual collects."""
        left_s = self._slo_s - self._fixed_s - self._item_s
        even_s = left_s / (1 + rate_rps * self._item_s)
        more = _ABOVE * np.sqrt(rate_rps * np.maximum(even_s, 0.0))
        grown_s = (left_s - self._item_s * more) / (1 + rate_rps * self._item_s)
        return np.maximum(grown_s, self._slack_s)  # no batch is larger than a full one

    def _backlog(self, rate_rps: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the share of requests that find a backlog longer than the slack."""
        load = np.clip(rate_rps / self._most_rps, 1e-9, 1 - 1e-9)
        exponent = _lundberg(load)
        slack_s = np.maximum(self._slack_s - 0.5 * self._full_s / self._count, 0.0)
        return np.asarray(
            _all_busy(load, self._count) * np.exp(-exponent * self._most_rps * slack_s)
        )


class _Patient(_Law):
    """The same test for patient batches, which wait for more requests."""

    def _busy_too_long(self, rate_rps: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the probability of the likeliest way for all instances to be busy."""
        window_s = _WAITED * self._slack_s
        began_s = self._full_s - (self._slack_s - window_s)
        unfilled = _at_most(rate_rps * window_s, self._batch - 2)  # its first one, and one to fill
        worst = np.zeros_like(rate_rps)
        for share in _FULL:
            full = share * self._count
            left = self._count - full
            mean = rate_rps * np.maximum(began_s - left * window_s, 0.0)
            tail = _likely_tail(mean, left + full * self._batch)
            worst = np.maximum(worst, tail * unfilled**left)
        return worst


def _all_busy(
    busy: npt.NDArray[np.float64], count: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return Sakasegawa's approximation of Erlang's C for ``count`` instances this busy."""
    return np.asarray(busy ** (np.sqrt(2 * (count + 1)) - 1))


def _tail(mean: npt.NDArray[np.float64], least: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return Chernoff's bound on the probability that a Poisson variable is at least ``least``."""
    below = np.clip(mean, 1e-12, least)
    return np.asarray(np.exp(least - below - least * np.log(least / below)) * (mean > 0))


def _likely_tail(
    mean: npt.NDArray[np.float64], least: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return Bahadur and Rao's approximation of the same, which is closer but not a bound."""
    spread = np.sqrt(2 * math.pi * least) * (1 - np.minimum(mean / least, 1.0))
    return np.asarray(_tail(mean, least) / np.maximum(spread, 1.0))


def _at_most(
    mean: npt.NDArray[np.float64], most: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return Chernoff's bound on the probability that a Poisson variable is at most ``most``."""
    above = np.maximum(mean, np.maximum(most, 1e-12))
    return np.asarray(np.exp(most - above - most * np.log(np.maximum(most, 1e-12) / above)))


def _lundberg(load: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Solve ``load (exp(z) - 1) = z`` for ``z`` above 0, by Newton's method from above."""
    root = 2 * (1 - load) / load  # the first terms of the series; never below the root
    root = np.minimum(root, 2 * np.log(1 / load) + 2)
    for _ in range(6):
        grown = np.exp(root)
        root = root - (load * (grown - 1) - root) / np.maximum(load * grown - 1, 1e-12)
    return np.asarray(np.maximum(root, 0.0))
