"""Detects other programs that disturb a measurement, by the kernel's accounting."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

__all__ = ["OtherPrograms"]

_STAT = Path("/proc/stat")
_TASKS = Path("/proc/self/task")
_IDLE, _WAITING = 3, 4  # columns; stolen time was used by other machines on the host
_COLUMNS = 8
_PROBE_S = 0.05  # five ticks of those accounts
_CALM_CORES = 0.1
_NS_PER_S = 1e9


class OtherPrograms:
    """CPU use of the other programs on this machine."""

    def __init__(self) -> None:
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")

    def await_calm(self, limit_s: float) -> None:
        """Wait until other programs leave the machine idle, or until the time limit."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            before_s, began = self._others_s(), time.monotonic()
            threading.Event().wait(_PROBE_S)
            if self._others_s() - before_s <= _CALM_CORES * (time.monotonic() - began):
                return

    def queued_s(self) -> float:
        """Return how long threads of this process have waited for a core so far, in seconds.

        It is 0 if the kernel does not account for it.
        """
        total_ns = 0
        for task in _TASKS.iterdir() if _TASKS.is_dir() else ():
            try:
                total_ns += int((task / "schedstat").read_text(encoding="ascii").split()[1])
            except (OSError, ValueError, IndexError):
                continue  # the thread has ended, or there are no accounts
        return total_ns / _NS_PER_S

    def _others_s(self) -> float:
        try:
            first = _STAT.read_text(encoding="ascii").split("\n", 1)[0].split()
        except OSError:
            return 0.0
        ticks = [int(word) for word in first[1 : 1 + _COLUMNS]]
        unused = ticks[_IDLE] + ticks[_WAITING]
        return (sum(ticks) - unused) / self._ticks_per_s - time.process_time()
