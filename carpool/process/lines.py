"""What a process prints: cut into lines of bounded length, and floods of them dropped."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

__all__ = ["LineBudget", "LineCutter", "read_lines"]

LINE_BYTES = 64 * 1024
LINES_PER_S = 10_000
_READ_BYTES = 16 * 1024  # at once: it may be as many lines, each of which takes time
_FLOOD_PAUSE_S = 0.001  # after each piece of a flood that is dropped


async def read_lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """The lines of a stream, and now and then how many of a flood were dropped."""
    cutter, budget, now = LineCutter(), LineBudget(), asyncio.get_running_loop().time
    while data := await stream.read(_READ_BYTES):
        if not budget.takes(data.count(b"\n"), now()):
            cutter.skip(data)
            await asyncio.sleep(_FLOOD_PAUSE_S)
            continue
        if told := budget.told():
            yield f"carpool: {told}"
        for line in cutter.feed(data):
            yield line
    if told := budget.told():
        yield f"carpool: {told}"
    for line in cutter.end():
        yield line


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
        """Skip to behind the lines that ``data`` completes."""
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
    """How many lines of one process are kept: at most ``per_s`` a second, or as many at once.

    To take more costs time that other work of this process needs.
    """

    def __init__(self, per_s: int = LINES_PER_S) -> None:
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
