"""Writes to stdout and stderr within the limits of of-watchdog's log pump.

The pump stops permanently at a line of 64 KiB; the pipe then fills and the function blocks in its
next print. So our own messages are bounded, and the author's lines are split. Payloads are never
logged, and a failed log write never fails a request.
"""

from __future__ import annotations

import io
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["LineSplitter", "bounded", "describe", "protect_streams", "say", "say_failure"]

MESSAGE_BYTES = 4096
LINE_BYTES = 32 * 1024
_FAILURES_PER_S = 10


def bounded(text: str, limit: int = MESSAGE_BYTES) -> str:
    """Return ``text`` in at most ``limit`` bytes: its start, a mark, and its end."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    mark = f" [... {len(data)} bytes in all, cut ...] "
    left = limit - len(mark)
    start, end = data[: left // 2], data[-(left - left // 2) :]
    return start.decode("utf-8", "ignore") + mark + end.decode("utf-8", "ignore")


def describe(error: BaseException) -> str:
    """Return an error's type and message on one line of bounded length."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    return bounded(f"{name}: {text}" if text else name, 500)


def say(message: str) -> None:
    """Write one message of bounded length to stderr."""
    try:
        sys.stderr.write(f"handler: {bounded(message)}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass  # the log is not read any more; that is no reason to stop serving


class _Budget:
    """Limits the messages per second, so that a failing model does not fill the disk with logs."""

    def __init__(self, per_s: int) -> None:
        self._per_s = per_s
        self._second = 0
        self._used = 0
        self._lock = threading.Lock()

    def take(self) -> bool:
        second = int(time.monotonic())
        with self._lock:
            if second != self._second:
                self._second, self._used = second, 0
            self._used += 1
            return self._used <= self._per_s


_failures = _Budget(_FAILURES_PER_S)


def say_failure(where: str, error: BaseException, *, trace: bool = True) -> None:
    """Log an unexpected error with its traceback, at most ten per second."""
    if _failures.take():
        lines = traceback.format_exception(error) if trace else []
        say("\n".join([f"{where} raised {describe(error)}", "".join(lines)]).rstrip())


class LineSplitter(io.BufferedIOBase):
    """A byte stream that breaks lines longer than ``limit`` before they reach ``target``."""

    def __init__(self, target: BinaryIO, limit: int = LINE_BYTES, name: str = "") -> None:
        super().__init__()
        self.name = name
        self._target = target
        self._limit = limit
        self._length = 0
        self._lock = threading.Lock()

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the target's descriptor, as programs started by the author may inherit it."""
        return self._target.fileno()

    def isatty(self) -> bool:
        """Return whether the target is a terminal."""
        return self._target.isatty()

    def write(self, data: ReadableBuffer, /) -> int:
        """Write ``data``, with a line break wherever a line would exceed the limit."""
        text = bytes(data)
        with self._lock:
            pieces = b"\n".join([self._split(line, i) for i, line in enumerate(text.split(b"\n"))])
            try:
                self._target.write(pieces)
                self._target.flush()
            except OSError:
                pass  # the reader is gone
        return len(text)

    def _split(self, line: bytes, index: int) -> bytes:
        """Split one line; the first line of a write continues the last line of the write before."""
        if index:
            self._length = 0
        parts = []
        while self._length + len(line) > self._limit:
            cut = self._limit - self._length
            while cut and line[cut] & 0xC0 == 0x80:  # noqa: PLR2004  inside a UTF-8 character
                cut -= 1
            parts.append(line[:cut])
            line, self._length = line[cut:], 0
        self._length += len(line)
        return b"\n".join([*parts, line])


def protect_streams() -> None:
    """Wrap ``sys.stdout`` and ``sys.stderr`` in a `LineSplitter`."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        splitter = LineSplitter(stream.buffer, name=stream.name)
        text = io.TextIOWrapper(
            splitter, encoding="utf-8", errors="backslashreplace", line_buffering=True
        )
        setattr(sys, name, text)
