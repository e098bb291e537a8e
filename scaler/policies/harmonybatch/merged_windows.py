"""Batches that several applications fill, each with a longest wait of its own.

A request of application k that arrives at ``a`` lets its batch leave at ``a + T_k`` at the latest,
so a batch leaves at ``min(a_i + T_i)`` over its members, or when it holds ``size`` (HarmonyBatch,
IWQoS'24, section III and appendix A). Arrivals are Poisson; every batch starts at once.

Theory of operation
-------------------
Count time from a batch's first request, which is k's with probability ``eta_k = r_k / R``. If no
size ended it, the batch is still collecting at ``d`` when ``T_k > d`` for the first and no j has
come in ``(0, d - T_j]``:

    S(d) = sum_{k: T_k > d} eta_k  exp(-A(d)),      A(d) = sum_j r_j max(0, d - T_j).

What came later than that is free, so given this the batch has ``1 + Poisson(L(d))`` members, with
``L(d) = R d - A(d)``, which wait independently: j's are uniform on ``(0, min(d, T_j))``. It closes

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
from typing import TYPE_CHECKING, Protocol

import numpy as np

from carpool.errors import ConfigError, Problem
from scaler.policies.harmonybatch.poisson_windows import checked, poisson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler.arrivals.processes import Times

__all__ = ["ExecutionTimes", "MergedBatches"]

_DECAYS = 24.0  # negative logarithm of what is as good as never
_NODES = np.array([-1.0, 1.0]) / math.sqrt(3)  # Gauss-Legendre, exact for cubics within a cell


class ExecutionTimes(Protocol):
    """How long batches of 1 to some size take, as far as latency is concerned."""

    def tails(self, at_s: Times) -> tuple[Times, Times]:
        """The tail at each time, and its integral from there on.

        Args:
            at_s: Times in seconds, of any shape.

        Returns:
            ``P(exec > at)`` and ``E[max(0, exec - at)]`` in seconds; each has the shape of
            ``at_s`` with one more axis before, for batches of 1, 2, ...
        """


@dataclass(frozen=True, eq=False)
class MergedBatches:
    """The law of batches that applications with windows fill together.

    Attributes:
        rates_rps: Requests per second of each application, at least one above 0.
        windows_s: The longest wait of each, in seconds.
        size: Requests in a full batch.
        cells: In how many parts the time of a batch is divided at least; errors of the integrals
            fall with its fourth power.

    Raises:
        ConfigError: rates or windows that are negative, infinite or not as many; no rate above 0.
    """

    rates_rps: Sequence[float]
    windows_s: Sequence[float]
    size: int
    cells: int = 128

    def __post_init__(self) -> None:
        """Refuse what no batch can be filled by."""
        checked(self.rates_rps, self.windows_s)
        if self.size < 1:
            problem = Problem("size", str(self.size), "a whole number of at least 1")
            raise ConfigError([problem])

    @cached_property
    def mean_size(self) -> float:
        """Requests in a batch: 1 and those that come while it collects."""
        if self.size == 1:
            return 1.0
        collecting = self._counts[:, : self.size - 1].sum(axis=1)
        return 1.0 + float(self._rate * (self._opened @ collecting))

    @cached_property
    def sizes(self) -> Times:
        """Shares of batches with 1, 2, ... ``size`` requests; shape ``(size,)``."""
        if self.size == 1:
            return np.ones(1)
        first, first_counts = self._first_waits
        shares = np.zeros(self.size)
        shares[:-1] = first @ first_counts[:, : self.size - 1]
        shares[1:-1] += (self._opened * self._over) @ self._counts[:, : self.size - 2]
        shares[-1] = max(0.0, 1.0 - shares.sum())
        return shares

    def wait_tail(self, app: int, at_s: Times) -> Times:
        """Shares of an application's requests that wait longer than each of ``at_s``.

        ``P(W > w) = (P(the first waits longer) + R * integral of S P(... <= size - 3)) / E[size]``
        below the window, for every request, and 0 from there on; some wait exactly the window.
        """
        if self.size == 1:
            return np.zeros_like(at_s)
        own = np.maximum(at_s, 0.0)
        passed, counts = self._come_to(own)
        first = np.exp(-passed) * counts[..., : self.size - 1].sum(axis=-1)
        later = self._counts[:, : max(self.size - 2, 0)].sum(axis=1) * self._opened
        # What is left of the integral, from the ends of the cells on, and linear within each.
        ends = np.append(later.reshape(-1, len(_NODES)).sum(axis=1)[::-1].cumsum()[::-1], 0.0)
        rest = self._rate * np.interp(own, self._edges, ends)
        tail = (first + rest) / self.mean_size
        return np.where(at_s < 0, 1.0, np.where(own < self._windows[app], tail, 0.0))

    def mean_wait_s(self, app: int) -> float:
        """Mean seconds that an application's requests wait for company: the tail's integral."""
        inside = self._at < self._windows[app]
        return float((self._weights * inside * self.wait_tail(app, self._at)).sum())

    def late_share(self, app: int, slo_s: float, executions: ExecutionTimes) -> float:
        """Share of an application's requests whose wait and execution exceed its objective.

        The execution time depends on the size of the batch, and that on the wait; this is the
        exact joint law, given per request of the application: its own rate cancels.

        Args:
            app: Its index.
            slo_s: Its objective in seconds.
            executions: Execution times of batches of 1 to ``size``, or more.
        """
        size, rate, window = self.size, self._rate, float(self._windows[app])
        if size == 1:
            return float(executions.tails(np.array([slo_s]))[0][0, 0])
        ends = np.minimum(self._windows, window)
        times = slo_s - np.concatenate([[0.0, window], ends, self._at])
        tails, integrals = (values[:size] for values in executions.tails(times))
        start = 2 + len(ends)
        inside = self._at < window
        uniform = np.where(inside, integrals[:, start:], integrals[:, 1:2]) - integrals[:, :1]
        # It is the first, and its window, a later member's or the size ends the batch.
        alone = inside * self._undue * self._weights
        late = (alone * self._over) @ _paired(self._counts[:, : size - 2], tails[1:-1, start:])
        late += rate * alone @ (self._counts[:, size - 2] * tails[-1, start:])
        first, first_counts = self._first_waits
        mine = self._come[0][len(self._at) + app]
        late += mine * (first_counts[app, : size - 1] @ tails[:-1, 1])
        # It is later, and its window ends the batch, or it fills it.
        late += rate * (self._opened * ~inside) @ (self._counts[:, : size - 2] @ tails[1:-1, 1])
        late += rate * (self._opened @ self._counts[:, size - 2]) * tails[-1, 0]
        # It is one of the others, which waits a uniform part of the time that its window allows.
        if size > 2:  # noqa: PLR2004  one begins it and one fills it
            due = _paired(self._counts[:, : size - 3], uniform[2:-1])
            late += rate * (self._opened * self._over) @ due
            late += rate * rate * self._opened @ (self._counts[:, size - 3] * uniform[-1])
        among = integrals[1:-1, 2:start] - integrals[1:-1, :1]
        late += rate * (first @ _paired(first_counts[:, : size - 2], among))
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
    def _edges(self) -> Times:
        """Cells of time; beyond the last a batch is full or has left, as good as surely."""
        ends = np.concatenate([[0.0], np.sort(self._windows)])
        # Both are linear from window to window. A smaller number of members is as good as never.
        enough = self.size + 5 * math.sqrt(self.size) + 10
        left = np.interp(_DECAYS, self._passed(ends), ends)
        full = np.interp(enough, self._members(ends), ends)
        longest = min(left, full)
        even = np.arange(1, self.cells + 1) * (longest / self.cells)
        return np.sort(np.concatenate([even, ends[ends < longest]]))

    @cached_property
    def _lengths(self) -> Times:
        return np.asarray(self._edges[1:] - self._edges[:-1])

    @cached_property
    def _at(self) -> Times:
        """Nodes, some for each cell."""
        middles = (self._edges[1:] + self._edges[:-1]) / 2
        return np.asarray((middles[:, None] + self._lengths[:, None] / 2 * _NODES).ravel())

    @cached_property
    def _weights(self) -> Times:
        return np.repeat(self._lengths / len(_NODES), len(_NODES))

    @cached_property
    def _over(self) -> Times:
        """At each node, the rate of those whose windows are over."""
        return np.asarray((self._windows <= self._at[:, None]) @ self._rates)

    @cached_property
    def _opened(self) -> Times:
        """``S`` at each node, by its weight."""
        return np.asarray((1 - self._over / self._rate) * self._undue * self._weights)

    @cached_property
    def _come(self) -> tuple[Times, Times]:
        """`_come_to` at nodes, and then at windows."""
        passed, counts = self._come_to(np.concatenate([self._at, self._windows]))
        return np.exp(-passed), counts

    @property
    def _undue(self) -> Times:
        """At each node, that no later member has ended the batch."""
        return self._come[0][: len(self._at)]

    @property
    def _counts(self) -> Times:
        """At each node, the probability of 0 to ``size - 1`` later members."""
        return self._come[1][: len(self._at)]

    @cached_property
    def _first_waits(self) -> tuple[Times, Times]:
        """By application: that its request is first and waits its window, and its later members."""
        undue, counts = (each[len(self._at) :] for each in self._come)
        return self._rates / self._rate * undue, counts

    def _come_to(self, at_s: Times) -> tuple[Times, Times]:
        """Arrivals that would have ended the batch before, and how likely 0, 1, ... members are."""
        return self._passed(at_s), poisson(self._members(at_s), self.size)

    def _passed(self, at_s: Times) -> Times:
        """``A``: arrivals that would have ended the batch before."""
        over = np.maximum(at_s[..., None] - self._windows, 0.0)
        return np.asarray(over @ self._rates)

    def _members(self, at_s: Times) -> Times:
        """``L``: later members in the mean, if the batch still collects."""
        return np.asarray(np.minimum(at_s[..., None], self._windows) @ self._rates)


def _paired(counts: Times, amounts: Times) -> Times:
    """At each node, the sum over numbers; shapes ``(nodes, numbers)`` and ``(numbers, nodes)``."""
    return np.asarray(np.einsum("ks,sk->k", counts, amounts))
