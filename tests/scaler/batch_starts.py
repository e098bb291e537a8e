"""Step-by-step simulation of batches on a limited number of instances, to check formulas against.

The rule is the batcher's: a batch starts when it has ``size`` requests or its first one has waited
``window_s``, and an instance is free; until then it grows.
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import heapreplace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.arrivals.processes import Times

__all__ = ["latencies"]


def latencies(
    arrivals: Times, size: int, window_s: float, seconds: Sequence[float], instances: int
) -> Times:
    """Return the latency of each request in seconds.

    Args:
        arrivals: Arrival times, ascending.
        size: Requests in a full batch.
        window_s: Longest time from the first request of a batch to its start.
        seconds: Execution times of batches of 1, 2 and so on.
        instances: Number of instances.
    """
    due, count = arrivals.tolist(), len(arrivals)
    free = [0.0] * instances
    ends, sizes = [], []
    first = 0
    while first < count:
        leaves = due[first] + window_s
        full = first + size
        if full <= count:
            leaves = min(leaves, due[full - 1])
        leaves = max(leaves, free[0])
        after = bisect_right(due, leaves, first, min(full, count))
        ends.append(leaves + seconds[after - first - 1])
        sizes.append(after - first)
        heapreplace(free, ends[-1])
        first = after
    found: Times = np.repeat(ends, sizes) - arrivals
    return found
