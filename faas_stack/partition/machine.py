"""What this machine has for functions: the cores and memory that this process may use itself."""

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
    """What there is for functions.

    Attributes:
        cores: the numbers of the cores; none: they are not known, and nobody is pinned.
        cpu: how much of them all may be used together, in cores.
        memory_bytes: memory.
        gpus: GPUs, or MIG instances of them, by name.
    """

    cores: tuple[int, ...] = ()
    cpu: float = math.inf
    memory_bytes: float = math.inf
    gpus: tuple[str, ...] = ()

    @property
    def unlimited(self) -> bool:
        """Whether nothing is counted, GPUs neither."""
        return self == Capacity()

    def to_dict(self) -> dict[str, float]:
        """As planners are told; empty where there is no bound."""
        if not math.isfinite(self.cpu):
            return {}
        sizes = {"cpus": self.cpu, "gpus": len(self.gpus)}
        known = math.isfinite(self.memory_bytes)
        return {**sizes, "memory_mb": self.memory_bytes / _BYTES_PER_MB} if known else sizes


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
