"""A message about what may happen very often is said seldom, with how often it happened."""

from __future__ import annotations

import math

__all__ = ["RateLimit"]


class RateLimit:
    """When to say again that it happened.

    Args:
        every_s: at most once in so many seconds.
    """

    def __init__(self, every_s: float = 60.0) -> None:
        self._every_s = every_s
        self._said = -math.inf
        self._times = 0

    def due(self, now: float) -> int:
        """It happened at ``now``: how often since it was last to be said, if it is now; else 0."""
        self._times += 1
        if now < self._said + self._every_s:
            return 0
        times, self._times, self._said = self._times, 0, now
        return times
