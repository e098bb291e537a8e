"""The batches in flight: how long each has run, when its instance will be free, who died of what.

An instance works through its batches in order. So a batch behind another begins when that one has
landed, and if the instance dies, only the first of its batches can have been the cause. Unless it
works on several at once: then each has run since it was sent, and any can have been the cause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.core.isolation import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.core.batch import Batch
    from sidecar.core.dispatch import Upstream

__all__ = ["Flights"]


class Flights:
    """Batches that were sent and have not come back.

    Attributes:
        last_exec_s: execution time of the one that came back last.
    """

    __slots__ = ("_flying", "last_exec_s")

    def __init__(self) -> None:
        self._flying: dict[int, Batch] = {}
        self.last_exec_s = 0.0

    def __len__(self) -> int:
        return len(self._flying)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._flying.values())

    def sent(self, batch: Batch) -> None:
        """``batch`` is on its way; all its members go to its first member's route."""
        self._flying[batch.id] = batch
        batch.upstream.took(batch.seats, batch.requests[0].route)

    def landed(self, batch: Batch, now: float) -> None:
        """``batch`` came back, well or not; measures its execution."""
        upstream = batch.upstream
        began = batch.sent if upstream.at_once > 1 else max(batch.sent, upstream.landed)
        batch.exec_s = self.last_exec_s = now - began
        upstream.in_flight -= 1
        upstream.alone = upstream.alone and upstream.in_flight > 0
        upstream.landed = now
        del self._flying[batch.id]

    def free_at(self, upstream: Upstream, now: float) -> float:
        """When ``upstream``, which is not free, is expected to begin with another batch."""
        ends = [batch.starts + upstream.exec_time.mean(batch.seats) for batch in self._of(upstream)]
        return max(now, sorted(ends)[-upstream.at_once])

    def death_of(self, batch: Batch) -> Fault:
        """What the death of its instance says of ``batch``, which has landed with it."""
        if batch.upstream.at_once > 1:
            return Fault.DIED
        others = self._of(batch.upstream)
        for other in others:
            other.behind = other.behind or other.id > batch.id
        waited = batch.behind or any(other.id < batch.id for other in others)
        return Fault.UNSENT if waited else Fault.DIED

    def _of(self, upstream: Upstream) -> list[Batch]:
        return [batch for batch in self if batch.upstream is upstream]
