"""Fits an arrival process to the number of requests in each of many equal intervals.

The statistics of counts are sums, so those of two periods can be added up. If the counts vary more
than those of a Poisson process, an MMPP(2) is fitted: its rate switches between two values, so the
counts of intervals some way apart are more strongly correlated, by an amount that falls
exponentially.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from carpool.arrivals.markov import mmpp2
from carpool.arrivals.processes import Poisson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.arrivals.map_counts import Markovian
    from carpool.arrivals.processes import Times

__all__ = ["CountStatistics", "Fit", "fitted_to_counts", "switching"]

_LEAST = 30  # least number of intervals
_SCORE = 3.0  # deviations from which variance is not due to chance
_SLOWEST, _FASTEST = 1e-3, 1e3  # limits of the decay rate of the autocorrelation, per interval
_NEAR = 1e-3  # smallest deviation from a constant rate, as a share of the mean


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted process, and how well it fits.

    Attributes:
        process: The process; None without any request.
        value: Statistic of the fit; NaN if there were too few counts.
        limit: Value that few good fits exceed.
    """

    process: Markovian | None
    value: float = math.nan
    limit: float = math.nan

    @property
    def accepted(self) -> bool:
        """Whether the statistic is within its limit."""
        return self.value <= self.limit


@dataclass(frozen=True, slots=True)
class CountStatistics:
    """Sums over the request counts of equal intervals.

    Attributes:
        interval_s: Length of an interval.
        intervals: Number of intervals.
        powers: Sums of the counts, their squares and their cubes.
        products: Sums of products of counts one interval apart, and two intervals apart.
        first, last: First two and last two counts, for products across a merger.
    """

    interval_s: float
    intervals: int = 0
    powers: tuple[float, float, float] = (0.0, 0.0, 0.0)
    products: tuple[float, float] = (0.0, 0.0)
    first: tuple[float, ...] = ()
    last: tuple[float, ...] = ()

    @classmethod
    def of(cls, counts: Sequence[float] | Times, interval_s: float) -> Self:
        """Return the statistics of consecutive counts."""
        seen = np.asarray(counts, dtype=float)
        first, second, third = (float((seen**power).sum()) for power in (1, 2, 3))
        near, far = (float(seen[lag:] @ seen[:-lag]) for lag in (1, 2))
        ends = tuple(seen[:2].tolist()), tuple(seen[-2:].tolist())
        return cls(interval_s, len(seen), (first, second, third), (near, far), *ends)

    def merge(self, later: CountStatistics) -> CountStatistics:
        """Return these statistics merged with those of the intervals that follow."""
        between = (*self.last, *later.first)
        start = len(self.last)
        crossing = [
            sum(
                between[at] * between[at - lag]
                for at in range(max(start, lag), min(start + lag, len(between)))
            )
            for lag in (1, 2)
        ]
        return CountStatistics(
            self.interval_s,
            self.intervals + later.intervals,
            _sum3(self.powers, later.powers),
            (
                self.products[0] + later.products[0] + crossing[0],
                self.products[1] + later.products[1] + crossing[1],
            ),
            (*self.first, *later.first)[:2],
            (*self.last, *later.last)[-2:],
        )


def fitted_to_counts(statistics: CountStatistics) -> Fit:
    """Fit a Poisson process, or an MMPP(2) if the counts vary significantly more.

    For a Poisson process, the statistic is the index of dispersion, variance over mean. An MMPP(2)
    has the mean, variance, skewness and lag-1 covariance of the counts; its statistic is the
    difference between its lag-2 correlation and that of the counts.
    """
    count, span_s = statistics.intervals, statistics.interval_s
    mean = statistics.powers[0] / max(count, 1)
    if count == 0 or mean == 0:
        return Fit(None)
    poisson = Poisson(mean / span_s)
    if count < _LEAST:
        return Fit(poisson)
    square, cubed = statistics.powers[1] / count, statistics.powers[2] / count
    variance = square - mean**2
    limit = 1 + _SCORE * math.sqrt(2 / count)
    if variance <= limit * mean:
        return Fit(poisson, variance / mean, limit)
    spread = variance - mean  # of the rate's integral over an interval
    near, far = (
        (product / (count - lag) - mean**2) / spread
        for lag, product in enumerate(statistics.products, 1)
    )
    lasting = _decay_rate(near)
    excess = (cubed - 3 * mean * square + 2 * mean**3) - 3 * spread - mean
    skewness = excess / spread**1.5  # of the rate's integral, and nearly of the rate
    of_rate = spread / (span_s**2 * _variance_ratio(lasting))
    process = switching(mean / span_s, of_rate, skewness, lasting / span_s)
    apart = abs(far - _lag1_correlation(lasting) * math.exp(-lasting))
    return Fit(process, apart, _SCORE * variance / spread / math.sqrt(count))


def switching(mean_rps: float, variance: float, skewness: float, relaxing: float) -> Markovian:
    """Return the MMPP(2) whose rate has these moments over time.

    If its lower rate would be negative, that is 0, and the skewness another; if the rate hardly
    varies, the process is a Poisson process.

    Args:
        mean_rps: Mean rate, above 0.
        variance: Variance of the rate, in 1/s^2.
        skewness: Skewness of the rate.
        relaxing: Decay rate of the rate's autocovariance, in 1/s, above 0.
    """
    if variance <= (_NEAR * mean_rps) ** 2:
        return Poisson(mean_rps)
    share = (1 - skewness / math.sqrt(4 + skewness**2)) / 2  # of time at the higher rate
    high_share = min(share, mean_rps**2 / (variance + mean_rps**2))  # or the lower is below 0
    spread = math.sqrt(variance)
    high = mean_rps + spread * math.sqrt((1 - high_share) / high_share)
    low = max(mean_rps - spread * math.sqrt(high_share / (1 - high_share)), 0.0)
    return mmpp2((low, high), (relaxing * high_share, relaxing * (1 - high_share)))


def _decay_rate(near: float) -> float:
    """Return the decay rate, per interval, of a rate process with this lag-1 correlation."""
    low, high = _SLOWEST, _FASTEST
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _lag1_correlation(middle) > near else (low, middle)
    return high


def _lag1_correlation(lasting: float) -> float:
    """Return the lag-1 correlation of a rate's integrals over consecutive intervals."""
    return math.expm1(-lasting) ** 2 / (lasting**2 * _variance_ratio(lasting))


def _variance_ratio(lasting: float) -> float:
    """Return the variance of a rate's mean over an interval, relative to that of the rate."""
    if lasting < _SLOWEST:
        return 1.0
    return 2 * (lasting + math.expm1(-lasting)) / lasting**2


def _sum3(
    one: tuple[float, float, float], other: tuple[float, float, float]
) -> tuple[float, float, float]:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]
