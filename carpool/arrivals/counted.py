"""Learns an arrival process from the rates that a policy is shown.

The rate of each round, measured since the previous one, is a count. Once there are enough of them,
an MMPP(2) is fitted (`count_statistics`), and fitted again as more arrive. Rounds out of turn are
ignored. Old counts are dropped in two steps, so a fit covers the last one to two spans.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from carpool.arrivals.count_statistics import CountStatistics, fitted_to_counts
from carpool.arrivals.markov import MarkovArrivals

if TYPE_CHECKING:
    from carpool.arrivals.count_statistics import Fit

__all__ = ["CountedArrivals"]

_SPAN = 12  # longest span, as a multiple of the least number of intervals
_AGAIN = 3  # number of refits within the least number of intervals
_OUT_OF_TURN = 0.01  # tolerance, as a share of an interval
_SETTLED = 3  # rounds after which the interval between them is known


class CountedArrivals:
    """Arrival process of one function, learned from its rates.

    Args:
        least: Number of intervals required before the first fit, at least 30.

    Attributes:
        fit: The last fit; None before the first.
    """

    def __init__(self, least: int) -> None:
        self.fit: Fit | None = None
        self._least = least
        self._last_s = math.nan
        self._before: CountStatistics | None = None
        self._recent = CountStatistics(0.0)
        self._unfitted = 0

    @property
    def bursty(self) -> MarkovArrivals | None:
        """The fitted process; None unless an MMPP(2) was fitted and accepted."""
        fit = self.fit
        process = fit.process if fit and fit.accepted else None
        return process if isinstance(process, MarkovArrivals) else None

    def note(self, now_s: float, rate_rps: float) -> None:
        """Record the arrival rate measured since the previous round."""
        span_s = now_s - self._last_s
        if math.isnan(span_s):
            self._last_s = now_s
            return
        known = self._recent
        if known.interval_s * (1 - _OUT_OF_TURN) > span_s:
            return  # the next in turn counts from where the last did
        self._last_s = now_s
        if span_s > known.interval_s * (1 + _OUT_OF_TURN):
            if known.intervals >= _SETTLED:
                return  # one was left out
            known = CountStatistics(span_s)
        interval_s = known.interval_s
        one = CountStatistics.of([rate_rps * interval_s], interval_s)
        self._recent = known.merge(one)
        self._unfitted += 1
        both = self._before.merge(self._recent) if self._before else self._recent
        if both.intervals >= self._least and self._unfitted >= self._least // _AGAIN:
            self.fit, self._unfitted = fitted_to_counts(both), 0
        if self._recent.intervals >= _SPAN * self._least:
            self._before, self._recent = self._recent, CountStatistics(interval_s)
