"""Capacity of this machine for functions: the cores and memory that this process may use."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

from carpool.own_cgroup import Place, own_place

__all__ = ["Capacity", "measured"]

_KIB = 1024
_BYTES_PER_MB = 1e6


@dataclass(frozen=True, slots=True)
class Capacity:
    """Capacity for functions.

    Attributes:
        cores: Core numbers; empty: unknown, and no instance is pinned.
        cpu: CPU time that may be used in all, in cores.
        memory_bytes: Memory.
        gpus: GPUs, or MIG instances of them, by name.
    """

    cores: tuple[int, ...] = ()
    cpu: float = math.inf
    memory_bytes: float = math.inf
    gpus: tuple[str, ...] = ()

    @property
    def unlimited(self) -> bool:
        """Whether nothing is counted, including GPUs."""
        return self == Capacity()

    def to_dict(self) -> dict[str, float]:
        """Return the capacity for planners. Empty if it is unlimited."""
        if not math.isfinite(self.cpu):
            return {}
        sizes = {"cpus": self.cpu, "gpus": len(self.gpus)}
        known = math.isfinite(self.memory_bytes)
        return {**sizes, "memory_mb": self.memory_bytes / _BYTES_PER_MB} if known else sizes


def measured(gpus: tuple[str, ...] = (), place: Place | None = None) -> Capacity:
    """Return the capacity within the limits of this process's own group."""
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
