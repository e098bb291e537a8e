"""Bursty arrivals: Markovian arrival processes (MAP), of which users configure the MMPP(2).

A MAP is in one of a few phases. ``silent[i][j]`` (D0) is the rate of changes from phase i to j
without a request, ``arriving[i][j]`` (D1) the rate of those with a request; the diagonal of D1
holds requests that do not change the phase. Formulas as in BATCH (SC'20) and the literature on
MAPs.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from carpool.scaling import PhaseRates
from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from carpool.arrivals.processes import Seed, Times

__all__ = ["MarkovArrivals", "mmpp2"]

Matrix: TypeAlias = tuple[tuple[float, ...], ...]

_STAYS = 256  # number of stays in a phase that are drawn at once
_ARRIVALS_PER_STAY = 256  # at most, on average; a longer stay is cut
_ROUNDING = 1e-9


def mmpp2(rates: Sequence[float], switch: Sequence[float]) -> MarkovArrivals:
    """Return a process of Poisson arrivals whose rate switches between two values.

    Args:
        rates: Requests per second in each phase.
        switch: How often a second each phase is left.

    Raises:
        ConfigError: There are not two of each, a rate is below 0, both are 0, or a phase is never
            left.
    """
    problems = Problems()
    good = len(rates) == 2 and all(0 <= rate < math.inf for rate in rates)  # noqa: PLR2004
    if not good or max(rates) == 0:
        problems.add("rates", rates, "two rates of at least 0, one of them above 0")
    if len(switch) != 2 or not all(0 < rate < math.inf for rate in switch):  # noqa: PLR2004
        problems.add("switch", switch, "two rates above 0")
    problems.raise_if_any()
    (first, second), (leave, back) = rates, switch
    silent = ((-first - leave, leave), (back, -second - back))
    return MarkovArrivals(silent, ((first, 0.0), (0.0, second)))


@dataclass(frozen=True, slots=True)
class MarkovArrivals:
    """A Markovian arrival process, which starts in its stationary distribution.

    Attributes:
        silent: D0, square; its diagonal makes the rows of D0 + D1 add up to 0.
        arriving: D1, of the same size.

    Raises:
        ConfigError: The matrices describe no process, or phases cannot be left.
    """

    silent: Matrix
    arriving: Matrix

    def __post_init__(self) -> None:
        """Refuse matrices that describe no process."""
        problems = Problems()
        if not _describes_a_process(self.silent, self.arriving):
            expected = "square matrices of rates whose rows add up to 0 together"
            problems.add("silent, arriving", f"{self.silent}, {self.arriving}", expected)
        problems.raise_if_any()

    @property
    def mean_rate(self) -> float:
        """Long-run requests per second."""
        return float(self.stationary() @ self._d1().sum(axis=1))

    @property
    def phase_rates(self) -> PhaseRates:
        """`silent` and `arriving`."""
        return PhaseRates(self.silent, self.arriving)

    def rate(self, at_s: float) -> float:
        """Return the mean rate, as the phase is unknown."""
        del at_s
        return self.mean_rate

    def stationary(self) -> Times:
        """Return the share of time spent in each phase."""
        generator = self._d0() + self._d1()
        ones = np.ones((len(generator), 1))
        sums = np.append(np.zeros(len(generator)), 1.0)
        shares: Times = np.linalg.lstsq(np.hstack([generator, ones]).T, sums, rcond=None)[0]
        return shares

    def at_arrivals(self) -> Times:
        """Return the share of requests after whose arrival the process is in each phase."""
        flow = self.stationary() @ self._d1()
        share: Times = flow / flow.sum()
        return share

    @property
    def gap_scv(self) -> float:
        """Squared coefficient of variation of the time between arrivals; 1 for Poisson."""
        return self._gap_moment(2) / self._gap_moment(1) ** 2 - 1

    def gap_correlation(self) -> float:
        """Return the lag-1 autocorrelation of the times between arrivals; 0 for Poisson."""
        stay = np.linalg.inv(-self._d0())
        mean = self._gap_moment(1)
        product = float((self.at_arrivals() @ stay @ stay @ self._d1() @ stay).sum())
        return (product - mean**2) / (self._gap_moment(2) - mean**2)

    @property
    def dispersion(self) -> float:
        """Variance over mean of the number of arrivals over a long time; 1 for Poisson."""
        flow, share = self._d1(), self.stationary()
        generator = self._d0() + flow
        fundamental = np.linalg.inv(np.outer(np.ones(len(share)), share) - generator)
        mean = self.mean_rate
        return float(1 + 2 * ((share @ flow @ fundamental @ flow).sum() / mean - mean))

    def chunks(self, until_s: float, seed: Seed) -> Iterator[Times]:
        """As `ArrivalProcess.chunks`: draws stays in phases, and Poisson arrivals within each."""
        draw = np.random.default_rng(seed)
        within = np.diag(self._d1())
        stays = _Stays(self._d0(), self._d1(), draw, self.stationary())
        at_s = 0.0
        while at_s < until_s:
            phases, arrives = stays.next()
            lengths = draw.standard_exponential(_STAYS) / stays.leave_rates[phases]
            ends = at_s + np.cumsum(lengths)
            starts = np.append(at_s, ends[:-1])
            counts = draw.poisson(within[phases] * lengths)
            spread = draw.random(int(counts.sum())) * np.repeat(ends - starts, counts)
            inside = np.minimum(np.repeat(starts, counts) + spread, np.repeat(ends, counts))
            times = np.sort(np.concatenate([inside, ends[arrives]]))
            yield times[: np.searchsorted(times, until_s)]
            at_s = float(ends[-1])

    def _gap_moment(self, order: int) -> float:
        stay = np.linalg.matrix_power(np.linalg.inv(-self._d0()), order)
        return float(math.factorial(order) * (self.at_arrivals() @ stay).sum())

    def _d0(self) -> Times:
        return np.array(self.silent, dtype=np.float64)

    def _d1(self) -> Times:
        return np.array(self.arriving, dtype=np.float64)


class _Stays:
    """A random walk through the phases.

    A phase may also be left for itself, silently, which changes nothing and bounds the number of
    arrivals in one stay.
    """

    def __init__(self, d0: Times, d1: Times, draw: np.random.Generator, share: Times) -> None:
        self._draw = draw
        self._size = len(d0)
        again = np.diag(d1) / _ARRIVALS_PER_STAY
        silently = d0 - np.diag(np.diag(d0)) + np.diag(again)
        arriving = d1 - np.diag(np.diag(d1))
        leaving = np.hstack([silently, arriving])
        self.leave_rates: Times = leaving.sum(axis=1)
        shares = np.cumsum(leaving, axis=1) / self.leave_rates[:, None]
        self._ways: list[list[float]] = shares[:, :-1].tolist()
        first = np.cumsum(share.clip(0))
        self._phase = bisect_right(list(first[:-1] / first[-1]), draw.random())

    def next(self) -> tuple[list[int], list[bool]]:
        """Return the phases of the next stays, and whether a request arrives as each ends."""
        phases, arrives = [], []
        for at in self._draw.random(_STAYS).tolist():
            phases.append(self._phase)
            way = bisect_right(self._ways[self._phase], at)
            arrives.append(way >= self._size)
            self._phase = way % self._size
        return phases, arrives


def _describes_a_process(silent: Matrix, arriving: Matrix) -> bool:
    size = len(silent)
    if size == 0 or {len(row) for row in (*silent, *arriving)} != {size} or len(arriving) != size:
        return False
    d0, d1 = np.array(silent, dtype=np.float64), np.array(arriving, dtype=np.float64)
    changes = d0 - np.diag(np.diag(d0)) + d1
    if not np.isfinite(d0 + d1).all() or (changes < 0).any() or not d1.any():
        return False
    balanced = np.abs((d0 + d1).sum(axis=1)) <= _ROUNDING * np.abs(np.diag(d0))
    reached = np.linalg.matrix_power(np.eye(size) + (changes > 0), size) > 0
    return bool(balanced.all() and reached.all())
