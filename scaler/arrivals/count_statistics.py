"""Statistics of the number of requests in each of many equal intervals.

Where gaps were not recorded, a scaler still has the counts of its intervals. Their sums can be
added up like those of gaps (`gap_statistics`), and an MMPP(2) can be fitted to them: its rate
switches between two values, so the counts of intervals some way apart are more strongly correlated
than those of a Poisson process, by an amount that falls exponentially.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from scaler.arrivals.fit import Fit
from scaler.arrivals.map_moments import switching
from scaler.arrivals.processes import Poisson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler.arrivals.processes import Times

__all__ = ["CountStatistics", "fitted_to_counts"]

_LEAST = 30  # intervals to tell anything from
_SCORE = 3.0  # deviations at which variance is none of chance
_SLOWEST, _FASTEST = 1e-3, 1e3  # how often the rate can be found to forget itself in an interval


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
    requests = round(statistics.powers[0])
    mean = statistics.powers[0] / max(count, 1)
    if count == 0 or mean == 0:
        return Fit(None, 0, note="no requests")
    poisson = Poisson(mean / span_s)
    if count < _LEAST:
        note = f"fewer than {_LEAST} intervals determine only their mean"
        return Fit(poisson, requests, note=note)
    square, cubed = statistics.powers[1] / count, statistics.powers[2] / count
    variance = square - mean**2
    limit = 1 + _SCORE * math.sqrt(2 / count)
    if variance <= limit * mean:
        return Fit(poisson, requests, "index of dispersion", variance / mean, limit)
    spread = variance - mean  # of the rate's integral over an interval
    near, far = (
        (product / (count - lag) - mean**2) / spread
        for lag, product in enumerate(statistics.products, 1)
    )
    lasting = _forgotten(near)
    excess = (cubed - 3 * mean * square + 2 * mean**3) - 3 * spread - mean
    skewness = excess / spread**1.5  # of the rate's integral, and nearly of the rate
    of_rate = spread / (span_s**2 * _smoothed(lasting))
    process, short = switching(mean / span_s, of_rate, skewness, lasting / span_s)
    note = f"it cannot have {short}" if short else ""
    apart = abs(far - _resemblance(lasting) * math.exp(-lasting))
    limit = _SCORE * variance / spread / math.sqrt(count)
    return Fit(process, requests, "lag-2 correlation", apart, limit, note)


def _forgotten(near: float) -> float:
    """Return the decay rate, per interval, of a rate process with this lag-1 correlation."""
    low, high = _SLOWEST, _FASTEST
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _resemblance(middle) > near else (low, middle)
    return high


def _resemblance(lasting: float) -> float:
    """Return the lag-1 correlation of a rate's integrals over consecutive intervals."""
    return math.expm1(-lasting) ** 2 / (lasting**2 * _smoothed(lasting))


def _smoothed(lasting: float) -> float:
    """Return the variance of a rate's mean over an interval, relative to that of the rate."""
    if lasting < _SLOWEST:
        return 1.0
    return 2 * (lasting + math.expm1(-lasting)) / lasting**2


def _sum3(
    one: tuple[float, float, float], other: tuple[float, float, float]
) -> tuple[float, float, float]:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]
