"""Compute what a request costs where executions are billed, and batches wait to fill up.

A batch begins with its first request and leaves when it is full or the window is over. With Poisson
arrivals at a rate ``R`` it has ``1 + min(N, b - 1)`` requests, where ``N`` is Poisson with mean
``R T``. The window ``T`` is the time that the objective leaves after a full batch's execution.

Execution times and costs of each option are computed once, and only options that are among the
cheapest at some rate are kept. Evaluating a rate is then a product of matrices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from carpool.scaling import Billing
    from scaler.policies.carpool.options import Option

__all__ = ["Filled", "Fills"]

_RATES_RPS = np.geomspace(1e-3, 1e5, 65)  # at which options are compared
_BEST = 2  # options that are kept for each rate


class Filled(NamedTuple):
    """Batches of one option at one rate.

    Attributes:
        at: Index of the option.
        cost: Cost per request.
        window_s: How long the first request waits.
        mean_batch: Mean number of requests in a batch.
        busy: Mean number of concurrent executions.
    """

    at: int
    cost: float
    window_s: float
    mean_batch: float
    busy: float


@dataclass(frozen=True, eq=False)
class Fills:
    """Options with the execution times and costs of their batches.

    Attributes:
        options: In any order.
        window_s: How long a batch's first request waits, shape (options,).
        exec_s: Execution time by batch size from 1, shape (options, largest batch); 0 beyond an
            option's largest.
        cost: Cost of such a batch, same shape.
        honest: Whether batches are as full as arrivals make them; otherwise they count as full.
    """

    options: tuple[Option, ...]
    window_s: npt.NDArray[np.float64]
    exec_s: npt.NDArray[np.float64]
    cost: npt.NDArray[np.float64]
    honest: bool = True

    @classmethod
    def of(
        cls, options: Sequence[Option], slo_s: float, billing: Billing, *, honest: bool = True
    ) -> Fills:
        """Return the options that are among the cheapest at some rate.

        Args:
            options: At least one.
            slo_s: Latency objective, less the time a request takes outside queue and execution.
            billing: What an execution costs.
            honest: As the attribute.
        """
        largest = max(option.size.batch for option in options)
        exec_s, cost = np.zeros((2, len(options), largest))
        for at, option in enumerate(options):
            batch = option.size.batch
            exec_s[at, :batch] = option.single_s + option.item_s * np.arange(batch)
            paid = [
                billing.execution(option.size.resources, s) for s in exec_s[at, :batch].tolist()
            ]
            cost[at, :batch] = paid
        left_s = [
            slo_s - option.size.exec_s if option.size.batch > 1 else 0.0 for option in options
        ]
        every = cls(tuple(options), np.maximum(left_s, 0.0), exec_s, cost, honest)
        return every.only(every.often_best())

    @cached_property
    def full_cost(self) -> npt.NDArray[np.float64]:
        """Cost of a request in each option's full batches, shape (options,)."""
        batch = np.array([option.size.batch for option in self.options])
        return np.asarray(self.cost[np.arange(len(batch)), batch - 1] / batch)

    def only(self, kept: Sequence[int]) -> Fills:
        """Return only the options at the given indices."""
        at = np.array(kept)
        options = tuple(self.options[place] for place in kept)
        return Fills(options, self.window_s[at], self.exec_s[at], self.cost[at], self.honest)

    def often_best(self) -> list[int]:
        """Return the indices of the options that are among the cheapest at some rate."""
        best: set[int] = set()
        for rate_rps in _RATES_RPS:
            cost = self._of_a_request(self.cost, self._shares(float(rate_rps)))
            best.update(np.argsort(cost, kind="stable")[:_BEST].tolist())
        return sorted(best)

    def at(self, rate_rps: float) -> list[Filled]:
        """Return every option, in order, with its batches at ``rate_rps`` requests per second."""
        shares = self._shares(rate_rps)
        columns = (
            self._of_a_request(self.cost, shares),
            self.window_s,
            _mean_batch(shares),
            rate_rps * self._of_a_request(self.exec_s, shares),
        )
        each = zip(*[column.tolist() for column in columns], strict=True)
        return [Filled(at, *values) for at, values in enumerate(each)]

    def _of_a_request(
        self, of_a_batch: npt.NDArray[np.float64], shares: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        return np.asarray((shares * of_a_batch).sum(axis=1) / _mean_batch(shares))

    def _shares(self, rate_rps: float) -> npt.NDArray[np.float64]:
        """Return the share of batches of each size from 1, shape (options, largest batch)."""
        batch = np.array([option.size.batch for option in self.options])
        numbers = np.arange(self.cost.shape[1])
        last = numbers == (batch - 1)[:, None]
        if not self.honest:
            return np.asarray(last * 1.0)
        logs = np.array([math.lgamma(number + 1) for number in numbers])
        mean = np.maximum(rate_rps * self.window_s, 1e-300)[:, None]
        known = np.exp(numbers * np.log(mean) - mean - logs) * (numbers < (batch - 1)[:, None])
        return np.asarray(known + last * np.maximum(1 - known.sum(axis=1), 0.0)[:, None])


def _mean_batch(shares: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.asarray(shares @ np.arange(1.0, shares.shape[1] + 1))
