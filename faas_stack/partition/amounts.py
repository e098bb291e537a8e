"""Formats amounts of cores, memory and GPUs for refusals and logs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faas_stack.partition.machine import Capacity
    from faas_stack.partition.resources import Resources

__all__ = ["capacity", "core_list", "cores", "instances", "labels", "resources", "size"]

_MIB = 2**20
_GIB = 2**30


def cores(count: float) -> str:
    """Format a number of cores, as in ``0.5 core`` or ``2 cores``."""
    return f"{count:g} {'core' if count <= 1 else 'cores'}"


def instances(count: int) -> str:
    """Format a number of instances, as in ``1 instance`` or ``3 instances``."""
    return f"{count} instance{'' if count == 1 else 's'}"


def size(size_bytes: float) -> str:
    """Format a size, as in ``256 MiB`` or ``1.5 GiB``."""
    unit, name = (_GIB, "GiB") if size_bytes >= _GIB else (_MIB, "MiB")
    return f"{size_bytes / unit:.4g} {name}"


def core_list(numbers: Sequence[int]) -> str:
    """Format core numbers like the kernel: ``0-2,5``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def resources(each: Resources) -> str:
    """Format what one instance requests."""
    words = [cores(each.cores)] if each.cores else []
    if each.memory_bytes:
        words.append(size(each.memory_bytes))
    if each.gpus:
        number = "one GPU" if each.gpus == 1 else f"each of {each.gpus} GPUs"
        words.append(f"{each.gpu_percent:g} % of {number}")
    return " and ".join(words) or "no limit"


def labels(each: Resources) -> str:
    """Return the labels that set the resources that an instance requests."""
    amounts = {"cpu": each.cores, "memory": each.memory_bytes, "gpu": each.gpus}
    return " and ".join(f"com.carpool.{name}" for name, amount in amounts.items() if amount)


def capacity(there: Capacity) -> str:
    """Format the capacity of a machine for functions."""
    words = [cores(there.cpu)] if math.isfinite(there.cpu) else []
    if math.isfinite(there.memory_bytes):
        words.append(size(there.memory_bytes))
    if there.gpus:
        words.append(f"{len(there.gpus)} GPU{'' if len(there.gpus) == 1 else 's'}")
    return " and ".join(words) or "its resources"
