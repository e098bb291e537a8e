"""A rate limit for messages about frequent events, which counts the events in between."""

from __future__ import annotations

import math

__all__ = ["RateLimit"]


class RateLimit:
    """A limit on how often an event is reported.

    Args:
        every_s: minimum time between reports, in seconds.
    """

    def __init__(self, every_s: float = 60.0) -> None:
        self._every_s = every_s
        self._said = -math.inf
        self._times = 0

    def due(self, now: float) -> int:
        """Count an event at ``now``; return the events since the last report if due, else 0."""
        self._times += 1
        if now < self._said + self._every_s:
            return 0
        times, self._times, self._said = self._times, 0, now
        return times
