"""Returns freed memory to the system, and keeps the garbage collector out of the way of requests.

glibc keeps freed memory for later use: after a flood of large bodies, hundreds of megabytes
would stay with the process for its lifetime. Elsewhere (musl, macOS) nothing is done.
"""

from __future__ import annotations

import ctypes
import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Trimmer", "collect_rarely", "resident_bytes", "trim"]

_WORTH_BYTES = 64 * 1024 * 1024  # less is not released, because trimming takes milliseconds
_IDLE_BYTES = 1024 * 1024  # held by connections in continuous use
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_NEW_OBJECTS = 50_000


def collect_rarely() -> None:
    """Run the garbage collector rarely, and never over the objects that exist now.

    A collection over all that a process has imported takes tens of milliseconds, in which no
    request is served. Requests leave no cycles, so there is little to find.
    """
    gc.enable()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)


def trim() -> None:
    """Return all free memory to the system; takes about a millisecond for every 2 MB."""
    if release := _malloc_trim():
        release()


class Trimmer:
    """Asks the allocator to return free memory, once after each peak.

    Args:
        resident: Returns the resident memory of the process.
        trim: Makes the allocator return free memory; None if it cannot.
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
            held_bytes: Memory in use for requests and responses; while it is high, no peak is over.
        """
        idle = held_bytes < _IDLE_BYTES
        if idle and self._was_idle and self._trim:
            if self._resident() > self._least + _WORTH_BYTES:
                self._trim()
                self._least = self._resident()  # the rest is in use
            else:
                self._least = min(self._least, self._resident())
        self._was_idle = idle


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 if the system does not report it."""
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
