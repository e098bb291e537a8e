"""A latency histogram with 0.2 % wide bins: millions of latencies in a few kilobytes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from carpool.log_histogram import LogBins

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Latencies"]

_PER_E = 500  # a bin is 0.2 % wide
_COUNT = math.ceil(_PER_E * math.log(1e10)) + 1  # up to some hours
_LEAST_S = 1e-6
_BINS = LogBins(_LEAST_S, math.exp(1 / _PER_E), _COUNT)
_EDGES_S = np.array(_BINS.edges)


class Latencies:
    """A histogram of latencies. Counts may be fractions, for estimated intervals.

    Attributes:
        count: Number of latencies.
        total_s: Exact sum of all latencies, in seconds.
    """

    __slots__ = ("_counts", "count", "total_s")

    def __init__(self) -> None:
        self.count = 0.0
        self.total_s = 0.0
        self._counts: npt.NDArray[np.float64] = np.zeros(_COUNT)

    def add(self, seconds: Sequence[float]) -> None:
        """Count each latency once."""
        if not seconds:
            return
        values = np.asarray(seconds, dtype=np.float64)
        self.count += len(values)
        self.total_s += float(values.sum())
        places = np.log(np.maximum(values, _LEAST_S) / _LEAST_S) * _PER_E  # a third of bisection
        counts = np.bincount(np.minimum(places.astype(np.int64) + 1, _COUNT - 1))
        self._counts[: len(counts)] += counts

    def merge(self, other: Latencies, scale: float = 1.0) -> None:
        """Add all latencies of ``other``, weighted by ``scale``."""
        self.count += scale * other.count
        self.total_s += scale * other.total_s
        self._counts += other._counts if scale == 1 else scale * other._counts

    @property
    def mean_s(self) -> float | None:
        """Return the mean, or None if there are no latencies."""
        return self.total_s / self.count if self.count else None

    def quantile_s(self, share: float) -> float | None:
        """Return a quantile with 0.2 % precision, or None if there are no latencies."""
        filled = np.flatnonzero(self._counts)
        if not len(filled):
            return None
        counts = self._counts[filled]
        sums = np.cumsum(counts)
        rank = share * sums[-1]
        at = int(np.searchsorted(sums, rank))
        return _BINS.inside_s(int(filled[at]), 1 - float((sums[at] - rank) / counts[at]))

    def curve(self) -> tuple[list[float], list[float]]:
        """Return the cumulative distribution for plotting: latencies in seconds, and shares."""
        filled = np.flatnonzero(self._counts)
        if not len(filled):
            return [], []
        shares = np.cumsum(self._counts[filled]) / self._counts.sum()
        ends_s = _EDGES_S[np.minimum(filled, len(_EDGES_S) - 1)]
        return ends_s.tolist(), shares.tolist()
