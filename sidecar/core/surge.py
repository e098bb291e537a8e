"""Whether more requests arrive than the scaler was told of, beyond what is chance.

Theory of operation
-------------------
A front reports every now and then, and plans are made for what it has reported. What comes in
between is held against that: as many as the rate told lets expect, and five standard deviations of
a Poisson count more, and a few, are no news. One more than that is, and the next report should not
wait for its time. The rate told is the mean of some seconds, which begin anew with such a report.

Only a rise is news: what it costs to notice a fall late is money, and no objective. Counting is on
the request path, so a count is held against the bound only where it can have reached it: the bound
grows with time, and what has not reached it now cannot with fewer requests than it allows now.
"""

from __future__ import annotations

import math

__all__ = ["Surge"]

_MEAN_S = 5.0  # how long what was told weighs
_DEVIATIONS = 5.0
_FEW = 3  # of a function that is hardly called no request is an event


class Surge:
    """Counts one front's arrivals between two reports.

    Args:
        now: Seconds, on any axis.
        told_rps: The rate that has been told before.

    Attributes:
        told_rps: The rate that reports have told.
    """

    __slots__ = ("_count", "_look_at", "_requests", "_seconds", "_since", "told_rps")

    def __init__(self, now: float, told_rps: float = 0.0) -> None:
        self._since = now
        self._count = 0
        self._look_at: float = _FEW + 1
        self._seconds = _MEAN_S if told_rps else 0.0
        self._requests = told_rps * self._seconds
        self.told_rps = told_rps

    def arrived(self, now: float) -> bool:
        """A request has come; whether that is news. It is at most once from report to report."""
        self._count += 1
        return self._count >= self._look_at and self._beyond(now)

    def add(self, count: int) -> None:
        """So many requests have come, and there was no time to look at each."""
        self._count += count

    def told(self, now: float) -> bool:
        """All that has come is being reported; whether it is more than what was told before."""
        period_s, count = now - self._since, self._count
        news = count > self._bound(now)
        if period_s > 0:
            kept = 0.0 if news else math.exp(-period_s / _MEAN_S)  # the past tells no more of it
            self._requests = kept * self._requests + count
            self._seconds = kept * self._seconds + period_s
            self.told_rps = self._requests / self._seconds
        self._since, self._count, self._look_at = now, 0, _FEW + 1
        return news

    def _beyond(self, now: float) -> bool:
        bound = self._bound(now)
        news = self._count > bound
        self._look_at = math.inf if news else bound
        return news

    def _bound(self, now: float) -> float:
        expected = self.told_rps * max(0.0, now - self._since)
        return expected + _DEVIATIONS * math.sqrt(expected) + _FEW
