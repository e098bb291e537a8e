"""The functions' output, line by line, kept in a ring of bounded size.

A ring serves one function and outlives its instances, so that the last lines of one that ended can
still be read. Followers hold a position in the ring instead of a queue, so a slow one loses lines
instead of filling memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from carpool.process.exit_status import CANNOT_START

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["LogLine", "LogQuery", "LogRing", "last_words"]

RING_LINES = 10_000
RING_BYTES = 4 * 1024 * 1024
_TAIL_LINES = 20


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line printed by an instance."""

    instance: str
    timestamp: datetime
    text: str


class LogQuery(NamedTuple):
    """A query for log lines.

    Attributes:
        instance: Name of the instance; empty for all instances.
        since: Time of the earliest line to return; None for all lines.
        tail: Maximum number of lines, counted from the last; 0 or less for all lines.
        follow: Whether to return future lines too.
    """

    instance: str = ""
    since: datetime | None = None
    tail: int = 0
    follow: bool = False

    def has(self, line: LogLine) -> bool:
        """Return whether ``line`` matches the instance and time of the query."""
        if self.instance and line.instance != self.instance:
            return False
        return self.since is None or line.timestamp >= self.since

    def choose(self, lines: Iterable[LogLine]) -> list[LogLine]:
        """Return the existing lines that match the query."""
        wanted = [line for line in lines if self.has(line)]
        return wanted[-self.tail :] if self.tail > 0 else wanted


class LogRing:
    """The most recent lines of one function."""

    def __init__(self, lines: int = RING_LINES, size_bytes: int = RING_BYTES) -> None:
        self._lines: deque[LogLine] = deque()
        self._max_lines = lines
        self._max_bytes = size_bytes
        self._bytes = 0
        self._news = asyncio.Event()
        self.next = 0
        self.closed = False

    def add(self, instance: str, text: str, printed: datetime | None = None) -> None:
        """Append a line, with the current time unless one is given."""
        line = LogLine(instance, printed or datetime.now(UTC), text)
        self._lines.append(line)
        self._bytes += len(text)
        self.next += 1
        while len(self._lines) > self._max_lines or self._bytes > self._max_bytes:
            self._bytes -= len(self._lines.popleft().text)
        self._wake()

    def since(self, position: int) -> list[LogLine]:
        """Return the kept lines from ``position`` on; ``next`` is the position after the last."""
        first = self.next - len(self._lines)
        skip = max(0, position - first)
        return list(self._lines)[skip:] if skip < len(self._lines) else []

    async def more(self, position: int) -> None:
        """Wait until there are lines from ``position`` on or the ring is closed."""
        while self.next <= position and not self.closed:
            await self._news.wait()

    def close(self) -> None:
        """Close the ring, as there will be no further lines."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        """Wake all current waiters; later ones wait for the next change."""
        self._news.set()
        self._news.clear()


def last_words(failure: str, reason: str, lines: Iterable[LogLine]) -> str:
    """Return a failure with its reason and the last lines printed before it.

    Args:
        failure: The failure.
        reason: Its reason, unless the handler itself has logged why it cannot start.
        lines: The printed lines.
    """
    texts = [line.text for line in lines]
    starts = [i for i, text in enumerate(texts) if text.startswith(CANNOT_START)]
    if starts:
        reason, texts = texts[starts[-1]], texts[starts[-1] + 1 :]
    because = f" ({reason})" if reason else ""
    tail = [f"  {text}" for text in texts[-_TAIL_LINES:]]
    after = "; its last output:" if tail else ""
    return "\n".join((f"{failure}{because}{after}", *tail))
