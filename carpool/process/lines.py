"""Output of a process: cut into lines of bounded length, with floods dropped."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

__all__ = ["LineBudget", "LineCutter", "read_lines"]

LINE_BYTES = 64 * 1024
LINES_PER_S = 10_000
_READ_BYTES = 16 * 1024  # read at once: there may be as many lines, each of which takes time
_FLOOD_PAUSE_S = 0.001  # after each piece of a flood that is dropped


async def read_lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """Yield the lines of a stream, and messages about dropped lines."""
    cutter, budget, now = LineCutter(), LineBudget(), asyncio.get_running_loop().time
    while data := await stream.read(_READ_BYTES):
        if not budget.takes(data.count(b"\n"), now()):
            cutter.skip(data)
            await asyncio.sleep(_FLOOD_PAUSE_S)
            continue
        if notice := budget.notice():
            yield f"carpool: {notice}"
        for line in cutter.feed(data):
            yield line
    if notice := budget.notice():
        yield f"carpool: {notice}"
    for line in cutter.end():
        yield line


class LineCutter:
    """Splits a byte stream into lines; bytes of a line beyond ``line_bytes`` are dropped."""

    def __init__(self, line_bytes: int = LINE_BYTES) -> None:
        self._line_bytes = line_bytes
        self._rest = bytearray()
        self._dropped = 0

    def feed(self, data: bytes) -> Iterator[str]:
        """Yield the lines that ``data`` completes."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._append(line)
            yield self._take()
        self._append(rest)

    def skip(self, data: bytes) -> None:
        """Skip the lines that ``data`` completes."""
        self._rest.clear()
        self._dropped = 0
        self._append(data.rpartition(b"\n")[2])

    def end(self) -> Iterator[str]:
        """Yield the unfinished last line, if there is one."""
        if self._rest:
            yield self._take()

    def _append(self, data: bytes) -> None:
        space = self._line_bytes - len(self._rest)
        self._rest += data[:space]
        self._dropped += max(0, len(data) - space)

    def _take(self) -> str:
        text = self._rest.decode("utf-8", "replace").rstrip("\r")
        if self._dropped:
            text += f" [{self._dropped} more bytes]"
        self._rest.clear()
        self._dropped = 0
        return text


class LineBudget:
    """Limit on the lines kept of one process: at most ``per_s`` per second, or as many at once.

    More lines would take time from other work of this process.
    """

    def __init__(self, per_s: int = LINES_PER_S) -> None:
        self._per_s = per_s
        self._left = float(per_s)
        self._since = -math.inf
        self._dropped = 0

    def takes(self, lines: int, now: float) -> bool:
        """Return whether ``lines`` more fit at ``now``; count them as dropped if not."""
        earned = (now - self._since) * self._per_s
        self._left, self._since = min(self._left + earned, self._per_s), now
        if lines > self._left:
            self._dropped += lines
            return False
        self._left -= lines
        return True

    def notice(self) -> str:
        """Return how many lines were dropped since the last call, in words; empty if none were."""
        dropped, self._dropped = self._dropped, 0
        return f"{dropped} lines were dropped: more than {self._per_s} a second" * bool(dropped)
