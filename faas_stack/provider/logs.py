"""What functions print, line by line, kept in a ring of bounded size.

A ring serves one function and outlives its instances, so that the last lines of one that died can
still be read. Followers hold a position in the ring instead of a queue: a slow one loses lines,
never memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["LogLine", "LogQuery", "LogRing", "last_words"]

RING_LINES = 10_000
RING_BYTES = 4 * 1024 * 1024
_TAIL_LINES = 20
_CANNOT_START = "handler: cannot start: "  # as `watchdog_plugin` says it


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line an instance printed."""

    instance: str
    timestamp: datetime
    text: str


class LogQuery(NamedTuple):
    """Which lines are asked for.

    Attributes:
        instance: of this one alone; empty: of all.
        since: none from before; None: from the first.
        tail: how many of the last there are at most; 0 or less: all.
        follow: whether lines that are still to come are wanted, too.
    """

    instance: str = ""
    since: datetime | None = None
    tail: int = 0
    follow: bool = False

    def has(self, line: LogLine) -> bool:
        """Whether ``line`` is of the wanted instance and time."""
        if self.instance and line.instance != self.instance:
            return False
        return self.since is None or line.timestamp >= self.since

    def choose(self, lines: Iterable[LogLine]) -> list[LogLine]:
        """Those of the lines there are already that are asked for."""
        wanted = [line for line in lines if self.has(line)]
        return wanted[-self.tail :] if self.tail > 0 else wanted


class LogRing:
    """The latest lines of one function."""

    def __init__(self, lines: int = RING_LINES, size_bytes: int = RING_BYTES) -> None:
        self._lines: deque[LogLine] = deque()
        self._max_lines = lines
        self._max_bytes = size_bytes
        self._bytes = 0
        self._news = asyncio.Event()
        self.next = 0
        self.closed = False

    def add(self, instance: str, text: str, printed: datetime | None = None) -> None:
        """Append a line, printed now unless the time is given."""
        line = LogLine(instance, printed or datetime.now(UTC), text)
        self._lines.append(line)
        self._bytes += len(text)
        self.next += 1
        while len(self._lines) > self._max_lines or self._bytes > self._max_bytes:
            self._bytes -= len(self._lines.popleft().text)
        self._wake()

    def since(self, position: int) -> list[LogLine]:
        """The kept lines from ``position`` on; ``next`` is the position after the last."""
        first = self.next - len(self._lines)
        skip = max(0, position - first)
        return list(self._lines)[skip:] if skip < len(self._lines) else []

    async def more(self, position: int) -> None:
        """Wait until there are lines from ``position`` on, or the ring is closed."""
        while self.next <= position and not self.closed:
            await self._news.wait()

    def close(self) -> None:
        """No further lines will come."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        """Those who wait continue; who waits from now on waits for what comes next."""
        self._news.set()
        self._news.clear()


def last_words(failure: str, reason: str, lines: Iterable[LogLine]) -> str:
    """A failure, why it came about, and what was printed last before it.

    Args:
        failure: what went wrong.
        reason: why, unless the handler says itself why it cannot start.
        lines: what was printed.
    """
    texts = [line.text for line in lines]
    starts = [i for i, text in enumerate(texts) if text.startswith(_CANNOT_START)]
    if starts:
        reason, texts = texts[starts[-1]], texts[starts[-1] + 1 :]
    because = f" ({reason})" if reason else ""
    tail = [f"  {text}" for text in texts[-_TAIL_LINES:]]
    after = "; its last words:" if tail else ""
    return "\n".join((f"{failure}{because}{after}", *tail))
