"""A rate limit for messages about frequent events, which counts the events in between."""

from __future__ import annotations

import math

__all__ = ["RateLimit"]

_EVERY_S = 60.0


class RateLimit:
    """A limit of one report of an event per minute."""

    def __init__(self) -> None:
        self._said = -math.inf
        self._times = 0

    def due(self, now: float) -> int:
        """Count an event at ``now``; return the events since the last report if due, else 0."""
        self._times += 1
        if now < self._said + _EVERY_S:
            return 0
        times, self._times, self._said = self._times, 0, now
        return times
