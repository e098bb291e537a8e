"""Batches in flight: execution times, when instances will be free, which batch is to blame.

An instance works through its batches in order. So a batch behind another begins when that one has
landed, and if the instance dies or hangs, only the first of its batches can have been the cause.
Unless it works on several at once: then each has run since it was sent, and any can have been the
cause of a death. Of a hang it is the one that was not answered in time: the others are not to
blame for how the instance ends, which is killed for it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sidecar.core.batch import Fault
from sidecar.core.request import State, advance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.core.batch import Batch
    from sidecar.core.dispatch import Upstream
    from sidecar.core.request import Request

__all__ = ["InFlight"]


class InFlight:
    """Batches that were sent and have not come back.

    Attributes:
        last_exec_s: execution time of the one that came back last.
        silent: instances that answer no probes.
    """

    __slots__ = ("_batches", "last_exec_s", "silent")

    def __init__(self) -> None:
        self._batches: dict[int, Batch] = {}
        self.last_exec_s = 0.0
        self.silent: set[Upstream] = set()

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches.values())

    def sent(self, batch: Batch) -> None:
        """``batch`` is on its way; all its members go to its first member's route."""
        self._batches[batch.id] = batch
        batch.upstream.took(batch.seats, batch.requests[0].route)

    def landed(self, batch: Batch, now: float) -> None:
        """``batch`` came back, well or not; measures its execution."""
        upstream = batch.upstream
        began = batch.sent if upstream.at_once > 1 else max(batch.sent, upstream.landed)
        batch.exec_s = self.last_exec_s = now - began
        upstream.in_flight -= 1
        upstream.alone = upstream.alone and upstream.in_flight > 0
        upstream.landed = now
        del self._batches[batch.id]

    def free_at(self, upstream: Upstream, now: float) -> float:
        """When ``upstream``, which is not free, is expected to begin with another batch."""
        mean, batches = upstream.exec_time.mean, self._of(upstream)
        if upstream.at_once > 1:
            ends = [batch.starts + mean(batch.seats) for batch in batches]
            return max(now, sorted(ends)[-upstream.at_once])
        end = upstream.landed
        for batch in batches:  # none has landed, so none ends before now
            end = max(now, max(end, batch.sent) + mean(batch.seats))
        return end

    def blamed(self, batch: Batch, fault: Fault) -> Fault:
        """What it says of ``batch``, which has landed, that its instance died or hung with it."""
        others = self._of(batch.upstream)
        if batch.upstream.at_once == 1:
            blameless = batch.behind or any(other.id < batch.id for other in others)
            for other in others:
                other.behind = other.behind or other.id > batch.id
        else:
            blameless = batch.behind and fault is Fault.DIED
            for other in others:
                other.behind = other.behind or fault is Fault.HUNG
        return Fault.UNSENT if blameless else fault

    @property
    def expires_at(self) -> float:
        """The earliest deadline of those with silent instances; ``inf`` if there is none."""
        if not self.silent:
            return math.inf
        return min((request.deadline for request in self._unheard()), default=math.inf)

    def expire(self, now: float) -> list[Request]:
        """Requests with silent instances and past their deadlines, now EXPIRED."""
        late = [request for request in self._unheard() if request.deadline <= now]
        for request in late:
            advance(request, State.EXPIRED)
        return late

    def _unheard(self) -> list[Request]:
        return [
            request
            for batch in self
            if batch.upstream in self.silent
            for request in batch.requests
            if request.state is State.IN_FLIGHT
        ]

    def _of(self, upstream: Upstream) -> list[Batch]:
        return [batch for batch in self if batch.upstream is upstream]
