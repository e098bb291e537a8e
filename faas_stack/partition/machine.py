"""What this machine has for functions: the cores and memory that this process may use itself."""

from __future__ import annotations

import math
import os
from pathlib import Path

from carpool.cgroups import Place, own_place
from faas_stack.partition.allocation import Capacity

__all__ = ["measured"]

_KIB = 1024


def measured(gpus: tuple[str, ...] = (), place: Place | None = None) -> Capacity:
    """The capacity, less what limits of this process's own group take away."""
    place = place or own_place()
    cores = tuple(sorted(os.sched_getaffinity(0)))
    return Capacity(
        cores,
        min(float(len(cores)), place.cpu()),
        min(_memory_bytes(), place.memory_bytes()),
        gpus,
    )


def _memory_bytes() -> float:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        name, _, amount = line.partition(":")
        if name == "MemTotal":
            return float(amount.split()[0]) * _KIB
    return math.inf
