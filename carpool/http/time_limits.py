"""Time limits of equal length, with one timer for all of them.

They expire in the order in which they began, so only the oldest needs a timer. When that one ends
early, as nearly all do, the timer still runs, and is then set for the oldest that remains.
"""

from __future__ import annotations

import asyncio
import math
from typing import Protocol

__all__ = ["Limited", "TimeLimits"]


class Limited(Protocol):
    """Work with a time limit."""

    def give_up(self) -> None:
        """End the work, as its time is over."""


class TimeLimits:
    """Time limits of ``limit_s`` seconds each; none if that is ``inf``."""

    __slots__ = ("_ends", "_limit_s", "_loop", "_timer")

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._ends: dict[Limited, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, work: Limited) -> None:
        """Give up ``work`` in time, unless it has ended."""
        if self._limit_s == math.inf:
            return
        self._ends[work] = ends_at = self._loop.time() + self._limit_s
        if self._timer is None:
            self._timer = self._loop.call_at(ends_at, self._alarm)

    def end(self, work: Limited) -> None:
        """End the limit of ``work``; do nothing if it has none."""
        self._ends.pop(work, None)

    def _alarm(self) -> None:
        self._timer = None
        now = self._loop.time()
        for work in [work for work, ends_at in self._ends.items() if ends_at <= now]:
            self._ends.pop(work)
            work.give_up()
        if self._ends and self._timer is None:
            self._timer = self._loop.call_at(next(iter(self._ends.values())), self._alarm)
