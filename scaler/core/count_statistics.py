"""What there is to know of how many requests came in each of many equal intervals.

Where nobody has kept the gaps, a scaler still has the counts of its intervals. Their sums can be
added up like those of gaps (`gap_statistics`), and an MMPP(2) follows from them: its rate switches
between two values, so the counts of intervals some way apart resemble each other more than those of
a Poisson process, by an amount that falls exponentially.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from scaler.core.arrival_fit import Fit
from scaler.core.arrivals import Poisson
from scaler.core.map_moments import switching

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler.core.arrivals import Times

__all__ = ["CountStatistics", "fitted_to_counts"]

_LEAST = 30  # intervals to tell anything from
_SCORE = 3.0  # deviations at which variance is none of chance
_SLOWEST = 1e-3  # what the rate forgets in an interval, at least


@dataclass(frozen=True, slots=True)
class CountStatistics:
    """Sums over intervals.

    Attributes:
        interval_s: Their length.
        intervals: How many.
        powers: Sums of the counts, their squares and cubes.
        products: Sums of products of counts of neighbours, and of next but one.
        first, last: The first two counts and the last two, for products across a merger.
    """

    interval_s: float
    intervals: int = 0
    powers: tuple[float, float, float] = (0.0, 0.0, 0.0)
    products: tuple[float, float] = (0.0, 0.0)
    first: tuple[float, ...] = ()
    last: tuple[float, ...] = ()

    @classmethod
    def of(cls, counts: Sequence[float] | Times, interval_s: float) -> Self:
        """The statistics of counts in their order."""
        seen = np.asarray(counts, dtype=float)
        first, second, third = (float((seen**power).sum()) for power in (1, 2, 3))
        near, far = (float(seen[lag:] @ seen[:-lag]) for lag in (1, 2))
        ends = tuple(seen[:2].tolist()), tuple(seen[-2:].tolist())
        return cls(interval_s, len(seen), (first, second, third), (near, far), *ends)

    def merge(self, later: CountStatistics) -> CountStatistics:
        """These and those of the intervals that follow, which are as long."""
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
    """Poisson unless the counts vary more than chance lets them; then an MMPP(2).

    The statistic is the index of dispersion, variance over mean, which is 1 for Poisson.
    """
    count, span_s = statistics.intervals, statistics.interval_s
    mean = statistics.powers[0] / max(count, 1)
    if count == 0 or mean == 0:
        return Fit(None, 0, note="no requests")
    poisson = Poisson(mean / span_s)
    if count < _LEAST:
        return Fit(poisson, 0, note=f"fewer than {_LEAST} intervals tell nothing but their mean")
    square, cubed = statistics.powers[1] / count, statistics.powers[2] / count
    variance = square - mean**2
    limit = 1 + _SCORE * math.sqrt(2 / count)
    dispersion = variance / mean
    known = {"gaps": round(statistics.powers[0]), "statistic": "index of dispersion"}
    near, far = (
        product / (count - lag) - mean**2 for lag, product in enumerate(statistics.products, 1)
    )
    if dispersion <= limit or near <= 0:
        return Fit(poisson, value=dispersion, limit=limit, **known)  # type: ignore[arg-type]
    kept = min(max(far / near, math.exp(-50.0)), 1 - _SLOWEST)
    relaxing = -math.log(kept) / span_s
    spread = near * (relaxing / (1 - kept)) ** 2  # variance of the rate
    excess = (cubed - 3 * mean * square + 2 * mean**3) - 3 * (variance - mean) - mean
    skewness = excess / (variance - mean) ** 1.5  # of the rate's integral, and nearly of the rate
    process, short = switching(mean / span_s, spread, skewness, relaxing)
    note = f"it could not have {short}" if short else ""
    own = _dispersion(spread, relaxing, mean / span_s, span_s)
    apart = abs(dispersion / own - 1)
    return Fit(process, known["gaps"], "dispersion, relative error", apart, 0.2, note)  # type: ignore[arg-type]


def _dispersion(variance: float, relaxing: float, rate_rps: float, span_s: float) -> float:
    """Variance over mean of the counts of a rate with this variance and decay."""
    lasting = relaxing * span_s
    return 1 + 2 * variance * (lasting - 1 + math.exp(-lasting)) / (relaxing**2 * rate_rps * span_s)


def _sum3(
    one: tuple[float, float, float], other: tuple[float, float, float]
) -> tuple[float, float, float]:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]
