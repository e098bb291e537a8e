"""Statistics of times between arrivals, as sums that can be added up.

They are sums of powers, sums of products of gaps some lags apart, and a histogram whose bounds are
a fixed ratio apart. The statistics of two consecutive stretches of time, merged, are those of both
together, so processes can be fitted again without the past gaps. Pure; nothing is fitted here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler.arrivals.processes import Times

__all__ = ["BOUNDS_S", "LAGS", "GapStatistics"]

LAGS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_PER_DECADE = 12
_LEAST = 1e-12
_HALF = 0.5
_POINTS = 16  # that stand for the gaps of a bin
_DECADES = (-7, 6)  # from a tenth of a microsecond to twelve days
BOUNDS_S: Times = 10.0 ** np.linspace(
    *_DECADES, (_DECADES[1] - _DECADES[0]) * _PER_DECADE + 1, dtype=float
)


def _none(count: int) -> Times:
    return np.zeros(count)


@dataclass(frozen=True, slots=True, eq=False)
class GapStatistics:
    """Sums over the gaps between requests.

    Attributes:
        count: Number of gaps.
        powers: Sums of the gaps, their squares and cubes, in s, s^2 and s^3, shape (3,).
        products: Sums of products of two gaps at each lag of `LAGS`, in s^2, shape (lags,).
        pairs: Number of pairs at each lag, shape (lags,).
        histogram: Gaps up to each of `BOUNDS_S`, and those beyond, shape (bounds + 1,).
        first, last: Gaps at both ends, as many as the longest lag, for pairs across a merger.
    """

    count: int = 0
    powers: Times = field(default_factory=lambda: _none(3))
    products: Times = field(default_factory=lambda: _none(len(LAGS)))
    pairs: Times = field(default_factory=lambda: _none(len(LAGS)))
    histogram: Times = field(default_factory=lambda: _none(len(BOUNDS_S) + 1))
    first: Times = field(default_factory=lambda: _none(0))
    last: Times = field(default_factory=lambda: _none(0))

    @classmethod
    def of(cls, gaps_s: Sequence[float] | Times) -> Self:
        """Return the statistics of consecutive gaps.

        Raises:
            ConfigError: A gap is negative or not finite.
        """
        gaps = np.asarray(gaps_s, dtype=float)
        bad = gaps[~((gaps >= 0) & np.isfinite(gaps))]
        if len(bad):
            problems = Problems()
            problems.add("gaps", float(bad[0]), "seconds of at least 0")
            problems.raise_if_any()
        products = [float(gaps[lag:] @ gaps[:-lag]) for lag in LAGS]
        pairs = [max(len(gaps) - lag, 0) for lag in LAGS]
        return cls(
            len(gaps),
            np.array([float((gaps**power).sum()) for power in (1, 2, 3)]),
            np.array(products),
            np.array(pairs, dtype=float),
            _binned(gaps, np.ones(len(gaps))),
            gaps[: LAGS[-1]],
            gaps[-LAGS[-1] :],
        )

    @classmethod
    def of_histogram(
        cls, bounds_s: Sequence[float], counts: Sequence[float], total_s: float | None = None
    ) -> Self:
        """Return the statistics of a histogram of gaps, without any information on their order.

        Within a bin, gaps are spread as if they ended at a constant rate, which is exact for
        Poisson arrivals; beyond the last bound, their mean is twice the bound. If the sum of all
        gaps is known, the moments are scaled to it.

        Args:
            bounds_s: Upper bounds of the bins, ascending, above 0; at least one.
            counts: Gaps in each bin, and beyond the last bound.
            total_s: Sum of all gaps, if known.
        """
        lower = np.concatenate([[0.0], np.asarray(bounds_s, dtype=float)])
        width = np.append(np.diff(lower), lower[-1])
        amounts = np.asarray(counts, dtype=float)
        left = np.append(np.cumsum(amounts[::-1])[::-1], 0.0) + _HALF
        ended = 1 - left[1:] / left[:-1]
        ended[-1] = 1 - math.exp(-1)  # of the rest, in as long again
        rate = np.maximum(-np.log1p(-ended), _LEAST) / width
        middles = (np.arange(_POINTS) + _HALF) / _POINTS
        share = middles * np.append(ended[:-1], 1.0)[:, None]
        flat = (lower[:, None] - np.log1p(-share) / rate[:, None]).ravel()
        weights = np.repeat(amounts / _POINTS, _POINTS)
        scale = 1.0 if total_s is None else total_s / max(float(weights @ flat), _LEAST)
        powers = np.array([float(weights @ (flat * scale) ** power) for power in (1, 2, 3)])
        return cls(round(amounts.sum()), powers, histogram=_binned(flat, weights))

    def merge(self, later: GapStatistics) -> GapStatistics:
        """Return these statistics merged with those of the stretch of time that follows."""
        products, pairs = self.products + later.products, self.pairs + later.pairs
        for place, lag in enumerate(LAGS):  # pairs of which one gap is on either side
            both = np.concatenate([self.last[-lag:], later.first[:lag]])
            ends = np.arange(max(len(self.last[-lag:]), lag), len(both))
            products[place] += both[ends] @ both[ends - lag]
            pairs[place] += len(ends)
        first = np.concatenate([self.first, later.first])[: LAGS[-1]]
        last = np.concatenate([self.last, later.last])[-LAGS[-1] :]
        return replace(
            self,
            count=self.count + later.count,
            powers=self.powers + later.powers,
            products=products,
            pairs=pairs,
            histogram=self.histogram + later.histogram,
            first=first if self.count == len(self.first) else self.first,
            last=last if later.count == len(later.last) else later.last,
        )

    @property
    def moments(self) -> Times:
        """Means of the gaps, their squares and cubes, in s, s^2 and s^3; zero without gaps."""
        return self.powers / max(self.count, 1)

    @property
    def scv(self) -> float:
        """Squared coefficient of variation; 1 if there are too few gaps."""
        mean, square, _ = self.moments.tolist()
        return square / mean**2 - 1 if mean > 0 and self.count > 1 else 1.0

    def correlations(self) -> Times:
        """Return the autocorrelation at each of `LAGS`, zero if unknown, shape (lags,)."""
        mean, square, _ = self.moments.tolist()
        spread = square - mean**2
        if not spread > 0:
            return np.zeros(len(LAGS))
        known = self.pairs > 0
        products = np.where(known, self.products / np.maximum(self.pairs, 1), mean**2)
        ratios: Times = (products - mean**2) / spread
        return ratios

    def beyond(self) -> Times:
        """Return the share of gaps longer than each of `BOUNDS_S`, shape (bounds,)."""
        shares: Times = 1 - np.cumsum(self.histogram)[:-1] / max(self.histogram.sum(), 1)
        return shares


def _binned(gaps: Times, weights: Times) -> Times:
    counts = np.bincount(np.searchsorted(BOUNDS_S, gaps), weights, len(BOUNDS_S) + 1)
    return counts.astype(np.float64)
