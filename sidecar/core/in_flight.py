"""Keeps the batches in flight: execution times, when instances will be free, and which to blame.

An instance works through its batches in order. So a pipelined batch starts when the one before it
has come back, and if the instance dies or hangs, only the first of its batches can be the cause.
An instance with a concurrency above 1 works on each batch from when it was sent, and any of them
can be the cause of a death. The cause of a hang is the batch that was not answered in time: the
instance is killed for it, and the other batches are not to blame for that.
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
        last_exec_s: execution time of the batch that came back last.
        silent: instances that answer no probes.
    """

    __slots__ = ("_batches", "_by_upstream", "last_exec_s", "silent")

    def __init__(self) -> None:
        self._batches: dict[int, Batch] = {}
        self._by_upstream: dict[Upstream, list[Batch]] = {}  # only upstreams with batches
        self.last_exec_s = 0.0
        self.silent: set[Upstream] = set()

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches.values())

    def add(self, batch: Batch) -> None:
        """Add ``batch``, which is sent; the route of its first member is that of all members."""
        self._batches[batch.id] = batch
        self._by_upstream.setdefault(batch.upstream, []).append(batch)
        batch.upstream.batch_sent(batch.item_count, batch.requests[0].route)

    def remove(self, batch: Batch, now: float) -> None:
        """Remove ``batch``, which came back, successful or not, and measure its execution.

        Do nothing if it was removed before.
        """
        if batch.id not in self._batches:
            return
        upstream = batch.upstream
        serial = upstream.concurrency == 1
        began = max(batch.sent, upstream.last_returned) if serial else batch.sent
        batch.exec_s = self.last_exec_s = now - began
        upstream.in_flight -= 1
        upstream.exclusive = upstream.exclusive and upstream.in_flight > 0
        upstream.last_returned = now
        del self._batches[batch.id]
        others = self._by_upstream[upstream]
        others.remove(batch)
        if not others:
            del self._by_upstream[upstream]

    def held_by(self, upstream: Upstream) -> list[Request]:
        """Return the requests that ``upstream`` holds and that have not ended."""
        return [
            request
            for batch in self._batches_of(upstream)
            for request in batch.requests
            if request.state is State.IN_FLIGHT
        ]

    def free_at(self, upstream: Upstream, now: float) -> float:
        """Return when ``upstream``, which is not free, is expected to start another batch."""
        mean, batches = upstream.exec_time.mean, self._batches_of(upstream)
        if upstream.concurrency > 1:
            ends = [batch.starts + mean(batch.item_count) for batch in batches]
            at_once = 1 if upstream.exclusive else upstream.concurrency
            return max(now, sorted(ends)[-at_once])
        end = upstream.last_returned
        for batch in batches:  # none has returned, so none ends before now
            end = max(now, max(end, batch.sent) + mean(batch.item_count))
        return end

    def attribute(self, batch: Batch, fault: Fault) -> Fault:
        """Return the fault charged to ``batch``, just removed, whose instance died or hung.

        Its own fault, or UNSENT if another batch of the instance is to blame.
        """
        others = self._batches_of(batch.upstream)
        if batch.upstream.concurrency == 1:
            blameless = batch.blameless or any(other.id < batch.id for other in others)
            for other in others:
                other.blameless = other.blameless or other.id > batch.id
        else:
            blameless = batch.blameless and fault is Fault.DIED
            for other in others:
                other.blameless = other.blameless or fault is Fault.HUNG
        return Fault.UNSENT if blameless else fault

    @property
    def expires_at(self) -> float:
        """Earliest deadline of requests with silent instances; ``inf`` if there are none."""
        if not self.silent:
            return math.inf
        return min((r.deadline for r in self._with_silent_instances()), default=math.inf)

    def expire(self, now: float) -> list[Request]:
        """Expire requests with silent instances whose deadline has passed; return them."""
        late = [request for request in self._with_silent_instances() if request.deadline <= now]
        for request in late:
            advance(request, State.EXPIRED)
        return late

    def _with_silent_instances(self) -> list[Request]:
        return [
            request
            for batch in self
            if batch.upstream in self.silent
            for request in batch.requests
            if request.state is State.IN_FLIGHT
        ]

    def _batches_of(self, upstream: Upstream) -> list[Batch]:
        return self._by_upstream.get(upstream, [])
