"""Key figures of a calibrated processor: arithmetic, bandwidth, overheads."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from carpool.predictor.features import WHOLE, sized

if TYPE_CHECKING:
    from collections.abc import Iterable

    from carpool.onnx_graph.operator_graph import Case
    from carpool.predictor.calibration import Calibration
    from carpool.predictor.profile import Alone

__all__ = ["Roofs", "roofs"]

# By family, how many of its first sizes have the number of multiplications as their product.
_PRODUCTS = {"dense": 4, "unfolded": 4, "direct": 7, "first": 7, "pointwise": 7, "depthwise": 7}
_IN_CACHE_BYTES, _IN_MEMORY_BYTES = 1e6, 32e6
_GIGA, _US_PER_S = 1e9, 1e6
_OPERATIONS = 2  # a multiplication and an addition


class Roofs(NamedTuple):
    """Highest measured rates on a number of threads; 0 if not measured.

    Attributes:
        threads: Number of threads.
        f32_gflops: Billions of 32-bit floating-point operations per second.
        i8_gops: Billions of 8-bit integer operations per second.
        cache_gb_s: GB per second read and written within caches.
        memory_gb_s: GB per second read and written beyond all caches.
        per_run_us: Microseconds of overhead per run, besides its operators.
        per_operator_us: Microseconds of overhead per operator; negative where timing costs more.
    """

    threads: int
    f32_gflops: float
    i8_gops: float
    cache_gb_s: float
    memory_gb_s: float
    per_run_us: float
    per_operator_us: float


def roofs(calibration: Calibration) -> list[Roofs]:
    """Return the roofs of a machine, by number of threads."""
    by_threads = []
    for threads, overhead in sorted(calibration.overheads.items()):
        rows = [row for row in calibration.rows if row.setting.threads == threads]
        besides_us = [seconds * _US_PER_S for seconds in overhead]
        by_threads.append(Roofs(threads, *_arithmetic(rows), *_moving(rows), *besides_us))
    return by_threads


def _arithmetic(rows: Iterable[Alone]) -> tuple[float, float]:
    """Return the rates of floating-point and of integer operations."""
    most = {False: 0.0, True: 0.0}
    for row in rows:
        size = sized(row.case)
        if size.family in _PRODUCTS:
            count = _OPERATIONS * math.prod(size.sizes[: _PRODUCTS[size.family]])
            whole = size.operator_class.endswith(WHOLE)
            most[whole] = max(most[whole], count / row.seconds / _GIGA)
    return most[False], most[True]


def _moving(rows: Iterable[Alone]) -> tuple[float, float]:
    """Return the bandwidths within caches and of memory."""
    cache = memory = 0.0
    for row in rows:
        moved = _bytes(row.case)
        if moved <= _IN_CACHE_BYTES:
            cache = max(cache, moved / row.seconds / _GIGA)
        if moved >= _IN_MEMORY_BYTES:
            memory = max(memory, moved / row.seconds / _GIGA)
    return cache, memory


def _bytes(case: Case) -> float:
    if case.op_type == "Gather":  # reads only as much of its table as it outputs
        return 0.0
    return sum(tensor.size_bytes for tensor in (*case.inputs, *case.outputs))
