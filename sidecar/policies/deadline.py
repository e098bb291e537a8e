"""SLO-aware batching: when an instance is free, send as many requests as their deadlines allow.

A request never waits for others: while the instance is busy a queue forms by itself, and when it is
free again, the largest prefix of the queue leaves whose execution is expected to end before the
tightest deadline in it. Batches grow with load and shrink to one without it, with no window to
tune (compare the pull of Triton's and TEI's batchers, and Clipper's SLO-bound sizes, NSDI'17).

Under overload a strict prefix rule collapses: the oldest requests are always nearly late, force a
batch of one or two, and the queue behind them grows late as well. So if the rest could not be in
time in the following batch, the oldest, which cannot be saved, are given up and the size is chosen
that completes the most requests in time per second of execution (Nexus, SOSP'19, section 6.3, drops
early for the same reason). No request is given up unless another is saved by it, nor because of a
cautious estimate: sizes are kept safe by the bound of the execution time, requests are given up
by its mean.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from sidecar.core.policy import Decision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.core.policy import Executed, Waiting
    from sidecar.core.request import Request

__all__ = ["Deadline"]


class Deadline:
    """Leave when an instance is free, in the largest batch that the deadlines allow."""

    @dataclass(frozen=True, slots=True)
    class Params:
        """Empty: the SLO and the largest batch are settings of the function."""

    def __init__(self, params: Params) -> None:
        del params

    def depart(self, request: Request) -> float:
        """Return the arrival time, so that the request leaves as soon as an instance is free."""
        return request.arrived

    def decide(self, waiting: Waiting) -> Decision:
        """Return the largest safe prefix, or under overload the batch that saves the most."""
        everything = Decision(waiting.limit)
        if not waiting.exec_time.settled:
            return everything
        size = min(waiting.count, waiting.limit)
        requests = waiting.first(size)
        tightest = min([request.deadline for request in requests])
        if waiting.now + waiting.exec_time.bound(size) <= tightest:
            return everything
        safe = _largest_safe(waiting, requests)
        if safe and _rest_is_safe(waiting, safe):
            return Decision(safe)
        return _most_saved(waiting)

    def observe(self, executed: Executed) -> None:
        """Do nothing; the batcher keeps the execution times."""


def _largest_safe(waiting: Waiting, requests: Sequence[Request]) -> int:
    """Return the most items that can leave together and all be in time; 0 if none can."""
    safe = items = 0
    tightest = math.inf
    for request in requests:
        items += request.item_count
        tightest = min(tightest, request.deadline)
        if waiting.now + waiting.exec_time.bound(items) > tightest:
            break
        safe = items
    return safe


def _rest_is_safe(waiting: Waiting, taken: int) -> bool:
    """Return whether the requests left by a batch of ``taken`` can be in time in the next batch."""
    gone = len(waiting.first(taken))
    size = min(waiting.count - taken, waiting.limit)
    rest = waiting.first(taken + size)[gone:]
    finish = waiting.now + waiting.exec_time.mean(taken) + waiting.exec_time.mean(size)
    return finish <= min([request.deadline for request in rest], default=math.inf)


def _most_saved(waiting: Waiting) -> Decision:
    """Return the batch that completes the most in time per second; all if none can be saved.

    Only the relevant part of a long queue is read: up to about a batch behind the last late
    request.
    """
    items, best = min(waiting.count, waiting.limit), None
    while best is None:
        items = min(2 * items, waiting.count)
        best = _best_of(waiting, waiting.first(items), whole_queue=items == waiting.count)
    return best


def _best_of(waiting: Waiting, first: Sequence[Request], *, whole_queue: bool) -> Decision | None:
    """Return `_most_saved` among ``first``; None if the requests behind them matter, too."""
    now, exec_time = waiting.now, waiting.exec_time
    requests = [request for request in first if request.deadline < math.inf]
    ends = list(accumulate([request.item_count for request in requests]))  # items so far
    best, best_rate = Decision(waiting.limit), 0.0
    late = 0  # number of late first requests; grows with the size, as larger batches take longer
    for size in _sizes(min(waiting.count, waiting.limit)):
        took_s = max(exec_time.mean(size), 1e-9)
        while late < len(requests) and requests[late].deadline < now + took_s:
            late += 1
        last = bisect_right(ends, size + (ends[late - 1] if late else 0))
        if last == len(requests) and not whole_queue:
            return None
        saved = sum([request.deadline >= now + took_s for request in requests[late:last]])
        if saved > best_rate * took_s:
            best, best_rate = Decision(size, late), saved / took_s
    return best


def _sizes(largest: int) -> list[int]:
    """Return the powers of two below ``largest``, and ``largest``: the rate is flat in between."""
    return [*(1 << power for power in range(largest.bit_length()) if 1 << power < largest), largest]
