"""Memory that was let go, given back to the system.

glibc keeps what was freed for the next time: after a flood of large bodies, hundreds of megabytes
would stay with the process for as long as it lives. Elsewhere (musl, macOS) nothing is done.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Trimmer", "resident_bytes"]

_WORTH_BYTES = 64 * 1024 * 1024  # less than this stays: to trim takes milliseconds
_IDLE_BYTES = 1024 * 1024  # held by connections that are served all the while
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Trimmer:
    """Asks the allocator to return free memory, once after each peak.

    Args:
        resident: how much memory the process has.
        trim: has the allocator return what is free; None where it cannot.
    """

    def __init__(
        self,
        resident: Callable[[], int] | None = None,
        trim: Callable[[], object] | None = None,
    ) -> None:
        self._resident = resident or resident_bytes
        self._trim = trim or _malloc_trim()
        self._least = self._resident()
        self._was_idle = False

    def look(self, held_bytes: int) -> None:
        """Trim if a peak is over; called about once a second.

        Args:
            held_bytes: what is in use for requests and answers: no peak is over while it is much.
        """
        idle = held_bytes < _IDLE_BYTES
        if idle and self._was_idle and self._trim:
            if self._resident() > self._least + _WORTH_BYTES:
                self._trim()
                self._least = self._resident()  # what is left is in use
            else:
                self._least = min(self._least, self._resident())
        self._was_idle = idle


def resident_bytes() -> int:
    """How much memory this process has; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


def _malloc_trim() -> Callable[[], object] | None:
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return None
    return lambda: trim(0)
