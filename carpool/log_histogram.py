"""Histograms of times in bins that grow by a ratio: small to send, precise at any scale.

The meaning of the times is not known here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BINS", "FIRST_S", "LogBins", "Spread", "bin_of", "middle_s", "quantile_s"]

FIRST_S = 0.001
BINS = 222  # up to about fifteen days

Spread = dict[int, int]  # counts by bin; empty bins are left out


class LogBins:
    """Bins of times, numbered from 0; bin 0 holds the times below the first edge.

    Args:
        first_s: The first edge.
        ratio: Ratio of an edge to the one before it.
        count: Number of bins; the last one holds all times from the last edge on.

    Attributes:
        edges: Where the bins from 1 on begin, in seconds.
    """

    __slots__ = ("_ratio", "edges")

    def __init__(self, first_s: float, ratio: float, count: int) -> None:
        self._ratio = ratio
        self.edges = [first_s * ratio**number for number in range(count - 1)]

    def bin_of(self, time_s: float) -> int:
        """Return the bin that contains ``time_s``."""
        return bisect_right(self.edges, time_s)

    def middle_s(self, number: int) -> float:
        """Return the time that represents a bin: the geometric mean of its edges."""
        return self.inside_s(number, 0.5)

    def quantile_s(self, counts: Mapping[int, float], share: float) -> float | None:
        """Return the time below which ``share`` of the counts lie; None if there are none.

        The counts of a bin are taken to be evenly distributed over it.
        """
        bins = sorted(number for number, count in counts.items() if count > 0)
        if not bins:
            return None
        sums = list(accumulate(counts[number] for number in bins))
        rank = share * sums[-1]
        at = bisect_left(sums, rank)
        return self.inside_s(bins[at], 1 - (sums[at] - rank) / counts[bins[at]])

    def inside_s(self, number: int, share: float) -> float:
        """Return the time at a share of a bin's width, on a logarithmic scale above the first."""
        if number == 0:
            return self.edges[0] * share
        return float(self.edges[number - 1] * self._ratio**share)


_TIMES = LogBins(FIRST_S, 1.1, BINS)
bin_of, middle_s, quantile_s = _TIMES.bin_of, _TIMES.middle_s, _TIMES.quantile_s
