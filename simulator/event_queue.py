"""The simulation's clock: a queue of calls to make between arrivals.

Calls that are due at the same time are made in the order they were scheduled, so a simulation is
reproducible. The queue does not know what the calls do.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["EventQueue"]

Entry: TypeAlias = "tuple[float, int, Callable[..., None], tuple[Any, ...]]"


class EventQueue:
    """Scheduled calls.

    Attributes:
        entries: Heap of the calls, public for loops that cannot afford a method call to check it.
        now_s: Time of the last call; set by the loop that pops an entry.
    """

    __slots__ = ("_order", "entries", "now_s")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._order = count()
        self.now_s = 0.0

    def at(self, when_s: float, call: Callable[..., None], *arguments: object) -> None:
        """Schedule ``call(when_s, *arguments)``."""
        heapq.heappush(self.entries, (when_s, next(self._order), call, arguments))

    def postpone(self, owner: object, by_s: float) -> None:
        """Delay all scheduled calls of methods of ``owner`` by ``by_s``."""
        self.entries[:] = [
            (when_s + by_s, order, call, arguments)
            if getattr(call, "__self__", None) is owner
            else (when_s, order, call, arguments)
            for when_s, order, call, arguments in self.entries
        ]
        heapq.heapify(self.entries)

    def run(self, until_s: float) -> None:
        """Make every call due by ``until_s``, including those scheduled meanwhile."""
        entries = self.entries
        while entries and entries[0][0] <= until_s:
            when_s, _, call, arguments = heapq.heappop(entries)
            self.now_s = when_s
            call(when_s, *arguments)

    def run_next(self) -> bool:
        """Make the next call; return False if there is none."""
        if not self.entries:
            return False
        when_s, _, call, arguments = heapq.heappop(self.entries)
        self.now_s = when_s
        call(when_s, *arguments)
        return True
