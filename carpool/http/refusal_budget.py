"""Limits the time that refusals take from the requests that are served.

A refusal is of use only if it comes soon, but while the processor is busy each one delays requests
that can still be in time. So refusals get a share of the time. A share that was not used is kept
for a moment, as overload comes in bursts.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["RefusalBudget"]

_SHARE = 1 / 20
_KEPT_S = 0.02
_AT_ONCE = 8  # reading the clocks takes a tenth of a refusal


class RefusalBudget:
    """The time for refusals.

    Args:
        clock: Returns monotonic seconds, which also advance within an event-loop iteration.
        used: Returns the seconds of processor time that this thread has used. Where processes share
            a core, these are far fewer than the seconds that pass.
    """

    __slots__ = ("_next_at", "_used", "clock")

    def __init__(
        self, clock: Callable[[], float], used: Callable[[], float] = time.thread_time
    ) -> None:
        self.clock = clock
        self._used = used
        self._next_at = 0.0

    def spend(self, refuse_next: Callable[[], bool]) -> None:
        """Refuse requests until the time for it is used up.

        Args:
            refuse_next: Refuses a request; returns False if there is none to refuse.
        """
        while (now := self.clock()) >= self._next_at:
            before_s, count = self._used(), 0
            while count < _AT_ONCE and refuse_next():
                count += 1
            took_s = self._used() - before_s
            self._next_at = max(self._next_at, now - _KEPT_S) + took_s / _SHARE
            if count < _AT_ONCE:
                return
