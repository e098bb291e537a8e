"""An alarm on the event loop that is accurate to some tens of microseconds.

Event loops count in whole milliseconds, which would show in every latency measured from a due
time. On Linux, a timer file descriptor is more accurate and costs nothing while it sleeps;
elsewhere the loop's own timer is used.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

__all__ = ["Alarm"]

_CLOCK_MONOTONIC = 1
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
_SHORTEST_S = 50e-6  # at high rates, requests due within one step are sent together


class _TimerSpec(ctypes.Structure):
    _fields_ = (
        ("every_s", ctypes.c_long),
        ("every_ns", ctypes.c_long),
        ("first_s", ctypes.c_long),
        ("first_ns", ctypes.c_long),
    )


class Alarm:
    """Timer that calls ``ring`` once after each `set`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
        self._fd = -1
        self._timer: asyncio.TimerHandle | None = None
        if self._libc:
            self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
        if self._fd >= 0:
            loop.add_reader(self._fd, self._expired)

    def set(self, delay_s: float) -> None:
        """Ring after ``delay_s``, replacing any time set before."""
        delay_s = max(delay_s, _SHORTEST_S)
        if self._libc and self._fd >= 0:
            whole_s = int(delay_s)
            spec = _TimerSpec(0, 0, whole_s, int((delay_s - whole_s) * 1e9))
            self._libc.timerfd_settime(self._fd, 0, ctypes.byref(spec), None)
            return
        if self._timer:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, self._ring)

    def close(self) -> None:
        """Cancel the alarm and free its timer."""
        if self._timer:
            self._timer.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _expired(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._fd, 8)
            self._ring()
