"""What functions print: cut into lines of bounded length, kept in a ring of bounded size.

A ring serves one function and outlives its instances, so that the last words of one that died can
still be read. Followers hold a position in the ring instead of a queue: a slow one loses lines,
never memory. An instance that prints without end loses lines, too, and nobody else's time.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LineBudget", "LineCutter", "LogLine", "LogRing"]

LINE_BYTES = 64 * 1024
RING_LINES = 10_000
RING_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line an instance printed."""

    instance: str
    timestamp: datetime
    text: str


class LineCutter:
    """Turns a byte stream into lines; what goes beyond ``line_bytes`` of a line is dropped."""

    def __init__(self, line_bytes: int = LINE_BYTES) -> None:
        self._line_bytes = line_bytes
        self._rest = bytearray()
        self._dropped = 0

    def feed(self, data: bytes) -> Iterator[str]:
        """The lines that ``data`` completes."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._append(line)
            yield self._take()
        self._append(rest)

    def skip(self, data: bytes) -> None:
        """Go on behind the lines that ``data`` completes."""
        self._rest.clear()
        self._dropped = 0
        self._append(data.rpartition(b"\n")[2])

    def end(self) -> Iterator[str]:
        """The unfinished last line, if there is one."""
        if self._rest:
            yield self._take()

    def _append(self, data: bytes) -> None:
        room = self._line_bytes - len(self._rest)
        self._rest += data[:room]
        self._dropped += max(0, len(data) - room)

    def _take(self) -> str:
        text = self._rest.decode("utf-8", "replace").rstrip("\r")
        if self._dropped:
            text += f" [{self._dropped} more bytes]"
        self._rest.clear()
        self._dropped = 0
        return text


class LineBudget:
    """How many lines of one instance are kept: at most ``per_s`` a second, or as many at once.

    More would be out of the ring before they have been read, and to take them costs time that
    calls of other functions need.
    """

    def __init__(self, per_s: int = RING_LINES) -> None:
        self._per_s = per_s
        self._left = float(per_s)
        self._since = -math.inf
        self._dropped = 0

    def takes(self, lines: int, now: float) -> bool:
        """Whether there is room for ``lines`` more at ``now``; if not they are to be dropped."""
        earned = (now - self._since) * self._per_s
        self._left, self._since = min(self._left + earned, self._per_s), now
        if lines > self._left:
            self._dropped += lines
            return False
        self._left -= lines
        return True

    def told(self) -> str:
        """How many were dropped since this was last asked, in words; empty if none."""
        dropped, self._dropped = self._dropped, 0
        return f"{dropped} lines were dropped: more than {self._per_s} a second" * bool(dropped)


class LogRing:
    """The latest lines of one function."""

    def __init__(self, lines: int = RING_LINES, size_bytes: int = RING_BYTES) -> None:
        self._lines: deque[LogLine] = deque()
        self._max_lines = lines
        self._max_bytes = size_bytes
        self._bytes = 0
        self._waiters: list[asyncio.Future[None]] = []
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
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def close(self) -> None:
        """No further lines will come."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
