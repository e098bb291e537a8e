"""The memory use of a measurement, as Linux reports it."""

from __future__ import annotations

import contextlib
from pathlib import Path

__all__ = ["PeakMemory", "status_mb"]

_KIB_PER_MIB = 1024
_RESET_PEAK = "5"


class PeakMemory:
    """Measures by how much this process's memory grows from now on."""

    def __init__(self) -> None:
        with contextlib.suppress(OSError):  # without it, an earlier peak counts too
            Path("/proc/self/clear_refs").write_text(_RESET_PEAK, encoding="ascii")
        self._before_mb = status_mb("VmRSS")

    def mb(self) -> float:
        """Return the peak growth in megabytes; 0 if the system does not report it."""
        return max(0.0, status_mb("VmHWM") - self._before_mb)


def status_mb(key: str) -> float:
    """Return a size of this process's memory in megabytes; 0 if the system does not report it.

    `getrusage` is not used, as its peak includes the process from which this one was forked.
    """
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0.0
    for line in lines:
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) / _KIB_PER_MIB
    return 0.0
