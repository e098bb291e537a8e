"""Detects when more requests arrive than the scaler expects, beyond chance.

Theory of operation
-------------------
A front reports its load at intervals, and the scaler plans for the reported rate. Arrivals between
two reports are compared with it: up to the expected count, plus five standard deviations of a
Poisson count, plus a few, there is no surge. With one more request there is, and the next report
should be sent at once. The reported rate is the mean over some seconds; a surge restarts the mean.

Only a rise counts: noticing a fall late costs money, but no objective. Counting happens on the
request path, so the count is compared only once it can have reached the bound: the bound grows with
time, so a count below it now cannot be a surge later.
"""

from __future__ import annotations

import math

__all__ = ["SurgeDetector"]

_MEAN_S = 5.0  # time constant of the average of reported rates
_DEVIATIONS = 5.0
_FEW = 3  # a single request to a rarely called function is not a surge


class SurgeDetector:
    """Counts one front's arrivals between two reports.

    Args:
        now: Seconds, on any axis.
        reported_rps: The rate reported before.

    Attributes:
        reported_rps: The rate that the scaler knows from reports.
    """

    __slots__ = ("_check_at", "_count", "_requests", "_seconds", "_since", "reported_rps")

    def __init__(self, now: float, reported_rps: float = 0.0) -> None:
        self._since = now
        self._count = 0
        self._check_at: float = _FEW + 1
        self._seconds = _MEAN_S if reported_rps else 0.0
        self._requests = reported_rps * self._seconds
        self.reported_rps = reported_rps

    def arrived(self, now: float) -> bool:
        """Count a request; return True, at most once between two reports, if it makes a surge."""
        self._count += 1
        return self._count >= self._check_at and self._exceeds_bound(now)

    def add(self, count: int) -> None:
        """Count requests without checking for a surge."""
        self._count += count

    def reported(self, now: float) -> bool:
        """Start a new count, as this one is being reported; return whether it is a surge."""
        period_s, count = now - self._since, self._count
        surge = count > self._bound(now)
        if period_s > 0:
            kept = 0.0 if surge else math.exp(-period_s / _MEAN_S)  # the load is new
            self._requests = kept * self._requests + count
            self._seconds = kept * self._seconds + period_s
            self.reported_rps = self._requests / self._seconds
        self._since, self._count, self._check_at = now, 0, _FEW + 1
        return surge

    def _exceeds_bound(self, now: float) -> bool:
        bound = self._bound(now)
        surge = self._count > bound
        self._check_at = math.inf if surge else bound
        return surge

    def _bound(self, now: float) -> float:
        expected = self.reported_rps * max(0.0, now - self._since)
        return expected + _DEVIATIONS * math.sqrt(expected) + _FEW
