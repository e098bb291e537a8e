"""A latency histogram with 0.2 % wide bins: millions of latencies in a few kilobytes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Latencies"]

_LEAST_S = 1e-6
_BINS_PER_E = 500  # a bin is 0.2 % wide
_BINS = math.ceil(_BINS_PER_E * math.log(1e10))  # up to some hours
_EXACT = 1.0 - 1e-12  # the share of a bin that a quantile at its very end falls in


class Latencies:
    """A histogram of latencies. Counts may be fractions, for estimated intervals.

    Attributes:
        count: Number of latencies.
        total_s: Exact sum of all latencies, in seconds.
    """

    __slots__ = ("_bins", "count", "total_s")

    def __init__(self) -> None:
        self.count = 0.0
        self.total_s = 0.0
        self._bins: npt.NDArray[np.float64] = np.zeros(_BINS)

    def add(self, seconds: Sequence[float]) -> None:
        """Count each latency once."""
        if not seconds:
            return
        values = np.asarray(seconds, dtype=np.float64)
        self.count += len(values)
        self.total_s += float(values.sum())
        places = np.log(np.maximum(values, _LEAST_S) / _LEAST_S) * _BINS_PER_E
        counts = np.bincount(np.minimum(places.astype(np.int64), _BINS - 1))
        self._bins[: len(counts)] += counts

    def merge(self, other: Latencies, scale: float = 1.0) -> None:
        """Add all latencies of ``other``, weighted by ``scale``."""
        self.count += scale * other.count
        self.total_s += scale * other.total_s
        self._bins += other._bins if scale == 1 else scale * other._bins

    @property
    def mean_s(self) -> float | None:
        """Return the mean, or None if there are no latencies."""
        return self.total_s / self.count if self.count else None

    def quantile_s(self, share: float) -> float | None:
        """Return a quantile with 0.2 % precision, or None if there are no latencies."""
        if not self.count:
            return None
        upto = np.cumsum(self._bins)
        rank = min(share, _EXACT) * upto[-1]
        place = int(np.searchsorted(upto, rank, side="right"))
        within = (rank - (upto[place] - self._bins[place])) / self._bins[place]
        return _LEAST_S * math.exp((place + within) / _BINS_PER_E)

    def curve(self) -> tuple[list[float], list[float]]:
        """Return the cumulative distribution for plotting: latencies in seconds, and shares."""
        filled = np.flatnonzero(self._bins)
        if not len(filled):
            return [], []
        shares = np.cumsum(self._bins[filled]) / self._bins.sum()
        seconds = _LEAST_S * np.exp((filled + 1) / _BINS_PER_E)
        return seconds.tolist(), shares.tolist()
