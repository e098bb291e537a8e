"""Test by replay whether a number of instances can serve a rate with few requests late.

The laws of `capacity` are conservative: some instances can serve more. A replay serves a fixed
sequence of Poisson arrivals, at a given rate, with a queue as a sidecar has it: requests that are
late already are refused, and batches leave as soon as an instance is free, or wait for more
requests. The sequence is always the same, so the same question has the same answer.
"""

from __future__ import annotations

import heapq
import itertools
import random
from typing import NamedTuple

__all__ = ["Queue"]

_REQUESTS = 2000
_RANDOM = random.Random("replayed arrivals")  # noqa: S311  a sample, not a secret
_ARRIVALS = tuple(itertools.accumulate(_RANDOM.expovariate(1.0) for _ in range(_REQUESTS)))


class Queue(NamedTuple):
    """Equal instances with one queue of requests.

    Attributes:
        instances: Number of instances.
        batch: Largest batch.
        single_s: Execution time of one request.
        item_s: Execution time that each further request adds.
        wait_s: The longest that a request waits for others.
        slo_s: Latency objective.
    """

    instances: int
    batch: int
    single_s: float
    item_s: float
    wait_s: float
    slo_s: float

    def holds(self, rate_rps: float, miss: float) -> bool:
        """Return whether at most the share ``miss`` of Poisson arrivals is late or refused."""
        left = int(miss * _REQUESTS)
        arrivals = [at / rate_rps for at in _ARRIVALS]
        free = [0.0] * self.instances
        single_s, item_s, wait_s = self.single_s, self.item_s, self.wait_s
        begin_s = self.slo_s - single_s
        first = 0
        while first < _REQUESTS:
            head = arrivals[first]
            start = max(free[0], head)
            last = first + self.batch
            if wait_s:
                full = arrivals[last - 1] if last <= _REQUESTS else head + wait_s
                start = max(start, min(full, head + wait_s))
            if head + begin_s < start:
                left -= 1
                first += 1
                if left < 0:
                    return False
                continue
            last = min(last, _REQUESTS)
            after = first + 1
            while after < last and arrivals[after] <= start:
                after += 1
            end = start + single_s + item_s * (after - first - 1)
            for at in range(first, after):
                if arrivals[at] + self.slo_s >= end:
                    break
                left -= 1
            if left < 0:
                return False
            heapq.heapreplace(free, end)
            first = after
        return True
