"""Batches that several applications fill, each with a longest wait of its own.

A request of application k that arrives at ``a`` lets its batch leave at ``a + T_k`` at the latest,
so a batch leaves at ``min(a_i + T_i)`` over its members, or when it holds ``size`` (HarmonyBatch,
IWQoS'24, section III and appendix A). Arrivals are Poisson; every batch starts immediately.

Theory of operation
-------------------
Count time from a batch's first request, which is k's with probability ``eta_k = r_k / R``. Unless
it was full before, the batch is still collecting at ``d`` if ``T_k > d`` for the first and no
request of any j has arrived in ``(0, d - T_j]``:

    S(d) = sum_{k: T_k > d} eta_k  exp(-A(d)),      A(d) = sum_j r_j max(0, d - T_j).

Later arrivals are unconstrained, so given this the batch has ``1 + Poisson(L(d))`` members, with
``L(d) = R d - A(d)``, which wait independently: those of j uniformly on ``(0, min(d, T_j))``. It
closes

* full, at the rate ``R S(d) P(Poisson(L(d)) = size - 2)``;
* for a later member of j, which has waited ``T_j``, at the rate ``r_j S(d)`` for ``d > T_j``;
* for its first, at ``d = T_k``, with probability ``eta_k exp(-A(T_k))``.

Everything below is an integral over these three. They are exact; the integrals are sums over nodes
that are dense enough for six digits or more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from carpool.errors import ConfigError, Problem
from scaler.policies.harmonybatch.poisson_windows import checked, poisson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.arrivals.processes import Times

__all__ = ["ExecutionTimes", "MergedBatches"]

_DECAYS = 24.0  # negative logarithm of a negligible probability
_NODES = np.array([-1.0, 1.0]) / math.sqrt(3)  # Gauss-Legendre, exact for cubics within a cell


class ExecutionTimes(Protocol):
    """Distribution of the execution times of batches by their size, as needed for latencies."""

    def tails(self, at_s: Times) -> tuple[Times, Times]:
        """Return the tail probability at each time, and its integral from there on.

        Args:
            at_s: Times in seconds, of any shape.

        Returns:
            ``P(exec > at)`` and ``E[max(0, exec - at)]`` in seconds; each has the shape of
            ``at_s`` with one more axis before, for batches of 1, 2, ...
        """


class _Law(NamedTuple):
    """A batch's law at the nodes of its integrals, and at the windows of its applications.

    Attributes:
        at_s: The nodes, several per cell; shape ``(nodes,)``, like the next ones.
        weights: Seconds that each represents.
        over: Total rate of the applications whose windows are over.
        undue: Probability that no later member has ended the batch.
        counts: Probability of 0 to ``size - 1`` later members; shape ``(nodes, size)``.
        opened: ``S``, times the weights.
        ended: By application: probability that no later member has ended the batch at its window.
        first: By application: probability that its request is first and waits its whole window.
        first_counts: As ``counts``, at the windows.
    """

    at_s: Times
    weights: Times
    over: Times
    undue: Times
    counts: Times
    opened: Times
    ended: Times
    first: Times
    first_counts: Times


@dataclass(frozen=True, eq=False)
class MergedBatches:
    """The law of batches that applications with windows fill together.

    Attributes:
        rates_rps: Requests per second of each application, at least one above 0.
        windows_s: The longest wait of each, in seconds.
        size: Requests in a full batch.
        cells: Minimum number of cells into which the time of a batch is divided; errors of the
            integrals fall with its fourth power.

    Raises:
        ConfigError: Rates or windows are negative, infinite or differ in number, or no rate is
            above 0.
    """

    rates_rps: Sequence[float]
    windows_s: Sequence[float]
    size: int
    cells: int = 128

    def __post_init__(self) -> None:
        """Validate the rates, the windows and the size."""
        checked(self.rates_rps, self.windows_s)
        if self.size < 1:
            problem = Problem("size", str(self.size), "a whole number of at least 1")
            raise ConfigError([problem])

    @cached_property
    def mean_size(self) -> float:
        """Mean number of requests in a batch: 1 and the arrivals while it collects."""
        if self.size == 1:
            return 1.0
        law = self._law
        collecting = law.counts[:, : self.size - 1].sum(axis=1)
        return 1.0 + float(self._rate * (law.opened @ collecting))

    @cached_property
    def sizes(self) -> Times:
        """Shares of batches with 1, 2, ... ``size`` requests; shape ``(size,)``."""
        if self.size == 1:
            return np.ones(1)
        law = self._law
        shares = np.zeros(self.size)
        shares[:-1] = law.first @ law.first_counts[:, : self.size - 1]
        shares[1:-1] += (law.opened * law.over) @ law.counts[:, : self.size - 2]
        shares[-1] = max(0.0, 1.0 - shares.sum())
        return shares

    def late_share(self, app: int, slo_s: float, executions: ExecutionTimes) -> float:
        """Return the share of an application's requests that miss its objective.

        The execution time depends on the size of the batch, and the size on the wait; this is the
        exact joint law, per request of the application: its own rate cancels.

        Args:
            app: Index of the application.
            slo_s: Its objective in seconds.
            executions: Execution times of batches of 1 to ``size``, or more.
        """
        size, rate, window = self.size, self._rate, float(self._windows[app])
        if size == 1:
            return float(executions.tails(np.array([slo_s]))[0][0, 0])
        law = self._law
        ends = np.minimum(self._windows, window)
        times = slo_s - np.concatenate([[0.0, window], ends, law.at_s])
        tails, integrals = (values[:size] for values in executions.tails(times))
        start = 2 + len(ends)
        inside = law.at_s < window
        # It is the first, and its window, a later member's or the size ends the batch.
        alone = inside * law.undue * law.weights
        late = (alone * law.over) @ _paired(law.counts[:, : size - 2], tails[1:-1, start:])
        late += rate * alone @ (law.counts[:, size - 2] * tails[-1, start:])
        late += law.ended[app] * (law.first_counts[app, : size - 1] @ tails[:-1, 1])
        # It is later, and its window ends the batch, or it fills it.
        late += rate * (law.opened * ~inside) @ (law.counts[:, : size - 2] @ tails[1:-1, 1])
        late += rate * (law.opened @ law.counts[:, size - 2]) * tails[-1, 0]
        # It is one of the others, which waits a uniform part of the time that its window allows.
        if size > 2:  # noqa: PLR2004  one begins it and one fills it
            uniform = np.where(inside, integrals[:, start:], integrals[:, 1:2]) - integrals[:, :1]
            due = _paired(law.counts[:, : size - 3], uniform[2:-1])
            late += rate * (law.opened * law.over) @ due
            late += rate * rate * law.opened @ (law.counts[:, size - 3] * uniform[-1])
        among = integrals[1:-1, 2:start] - integrals[1:-1, :1]
        late += rate * (law.first @ _paired(law.first_counts[:, : size - 2], among))
        return min(max(float(late) / self.mean_size, 0.0), 1.0)

    @cached_property
    def _rates(self) -> Times:
        return np.asarray(self.rates_rps, dtype=np.float64)

    @cached_property
    def _windows(self) -> Times:
        return np.asarray(self.windows_s, dtype=np.float64)

    @cached_property
    def _rate(self) -> float:
        return float(self._rates.sum())

    @cached_property
    def _law(self) -> _Law:
        """Quantities that do not depend on an objective; computed once, as searches reuse them."""
        windows, rate = self._windows, self._rate
        edges = self._edges()
        lengths = edges[1:] - edges[:-1]
        middles = (edges[1:] + edges[:-1]) / 2
        at = (middles[:, None] + lengths[:, None] / 2 * _NODES).ravel()
        weights = np.repeat(lengths / len(_NODES), len(_NODES))
        over = (windows <= at[:, None]) @ self._rates
        passed, counts = self._counts_at(np.concatenate([at, windows]))
        none = np.exp(-passed)
        undue, ended = none[: len(at)], none[len(at) :]
        opened = (1 - over / rate) * undue * weights
        first = self._rates / rate * ended
        own, of_first = counts[: len(at)], counts[len(at) :]
        return _Law(at, weights, over, undue, own, opened, ended, first, of_first)

    def _edges(self) -> Times:
        """Return the edges of the cells; almost surely, a batch is full or gone after the last."""
        ends = np.concatenate([[0.0], np.sort(self._windows)])
        # Both are linear between windows. With this many members expected, a batch is full.
        enough = self.size + 5 * math.sqrt(self.size) + 10
        passed, members = self._expected(ends)
        longest = min(np.interp(_DECAYS, passed, ends), np.interp(enough, members, ends))
        even = np.arange(1, self.cells + 1) * (longest / self.cells)
        return np.sort(np.concatenate([even, ends[ends < longest]]))

    def _counts_at(self, at_s: Times) -> tuple[Times, Times]:
        """Return ``A`` at each time, and the probabilities of 0, 1, ... later members."""
        passed, members = self._expected(at_s)
        return passed, poisson(members, self.size)

    def _expected(self, at_s: Times) -> tuple[Times, Times]:
        """Return ``A``, expected arrivals that would have ended it, and ``L``, later members."""
        ages = at_s[..., None]
        over = np.maximum(ages - self._windows, 0.0)
        return over @ self._rates, np.minimum(ages, self._windows) @ self._rates


def _paired(counts: Times, amounts: Times) -> Times:
    """Return the product's sum at each node; shapes ``(nodes, numbers)``, ``(numbers, nodes)``."""
    return np.asarray(np.einsum("ks,sk->k", counts, amounts))
