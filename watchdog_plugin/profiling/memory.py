"""The memory that a measurement takes, as Linux reports it."""

from __future__ import annotations

import contextlib
from pathlib import Path

__all__ = ["PeakMemory"]

_KIB_PER_MIB = 1024
_RESET_PEAK = "5"


class PeakMemory:
    """How far this process's memory rises from now on."""

    def __init__(self) -> None:
        with contextlib.suppress(OSError):  # without it, an earlier peak counts too
            Path("/proc/self/clear_refs").write_text(_RESET_PEAK, encoding="ascii")
        self._before_mb = _status_mb("VmRSS")

    def mb(self) -> float:
        """Megabytes above where it began; 0 where the system does not tell."""
        return max(0.0, _status_mb("VmHWM") - self._before_mb)


def _status_mb(key: str) -> float:
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0.0
    for line in lines:
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) / _KIB_PER_MIB
    return 0.0
