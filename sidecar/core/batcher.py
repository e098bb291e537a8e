"""The batcher: the one place where requests are admitted, gathered, sent and brought to an end.

Theory of operation
-------------------
Events come in as calls (`admit`, `cancel`, `finished`, `broken`, `drain`), each with the time.
After any of them the shell calls `step`, which returns what to do: batches to send, requests that
expired. Between events the shell sleeps until `wake_at`. Nothing else changes the queue.

A batch that failed as a whole comes back through `broken`, which may divide it (`isolation`); the
parts leave before anything that still queues.

A batch closes only when a free instance is there to take it, as a busy instance never causes a
small batch, and then for the first of these reasons: it is as large as the policy wants, the
departure time of a member has come, or the sidecar drains.

Rules: `step` is the only producer of batches; the state table (`states`) is the only judge of a
request's fate; the same calls give the same actions.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sidecar.core.dispatch import Upstream, Upstreams
from sidecar.core.exec_time import ExecTime
from sidecar.core.isolation import Fault, Isolation, Lineage
from sidecar.core.policy import Executed, Waiting
from sidecar.core.queue import Group, Queue
from sidecar.core.shedding import Shedding
from sidecar.core.states import TERMINAL, State, advance

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from sidecar.core.policy import BatchPolicy
    from sidecar.core.request import Request

__all__ = ["Actions", "Batch", "Batcher", "Closed", "Fault", "Refusal"]


class Closed(enum.Enum):
    """Why a batch closed."""

    FULL = "full"
    DEPARTURE = "departure"
    DRAIN = "drain"
    ISOLATION = "isolation"


class Refusal(enum.Enum):
    """Why a request was not admitted."""

    QUEUE_FULL = "queue_full"
    EXPIRED = "expired"
    LATE = "late"


@dataclass(slots=True, eq=False)
class Batch:
    """Requests that travel together.

    Attributes:
        id: unique within the sidecar.
        requests: the members, in order of arrival.
        upstream: the instance that takes it.
        closed: why it closed.
        sent: when it was sent.
        attempt: how often its members have been sent together, from 1.
        lineage: the batch that it is a part of, if that was divided.
    """

    id: int
    requests: list[Request]
    upstream: Upstream
    closed: Closed
    sent: float
    attempt: int = 1
    lineage: Lineage | None = None


class _Part(NamedTuple):
    """Requests of a failed batch that wait to be sent again."""

    requests: list[Request]
    attempt: int
    lineage: Lineage | None


class Actions(NamedTuple):
    """What the shell has to do after a step."""

    send: list[Batch]
    expired: list[Request]


class Batcher:
    """The state machine of one function's sidecar.

    Args:
        policy: decides departure times and batch sizes.
        batch_max: largest batch, whatever the policy says.
        queue_max: most requests waiting; further ones are refused.
        shedding: whether what is predicted to be late is refused.
        batch_bytes_max: largest batch in bytes; a single larger request travels alone.
        fingerprint: what makes a request recognisable when it comes again.
    """

    def __init__(
        self,
        policy: BatchPolicy,
        *,
        batch_max: int,
        queue_max: int,
        shedding: Shedding | None = None,
        batch_bytes_max: float = math.inf,
        fingerprint: Callable[[Request], Hashable] = lambda request: request.id,
    ) -> None:
        self._policy = policy
        self.batch_max = batch_max
        self._queue_max = queue_max
        self._batch_bytes_max = batch_bytes_max
        self._queue = Queue()
        self._batches = 0
        self._draining = False
        self._fingerprint = fingerprint
        self._isolation = Isolation()
        self._parts: deque[_Part] = deque()
        self._flying: dict[int, Batch] = {}
        self.shedding = shedding or Shedding()
        self.upstreams = Upstreams()
        self.exec_time = ExecTime()

    @property
    def queued(self) -> int:
        """Requests waiting."""
        return self._queue.live

    @property
    def in_flight(self) -> int:
        """Batches in flight."""
        return len(self._flying)

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing is in flight."""
        return not (self._queue.live or self._parts or self._flying)

    def admit(self, request: Request, now: float) -> Refusal | None:
        """Take a request in, or say why not."""
        refusal = self._objection(request, now)
        if refusal:
            advance(request, State.REFUSED)
            return refusal
        if self._isolation.suspicious(now) and self._isolation.apart(self._fingerprint(request)):
            request.key = (request.key, request.id)
        request.depart = self._policy.depart(request)
        advance(request, State.QUEUED)
        self._queue.push(request)
        return None

    def cancel(self, request: Request) -> None:
        """The caller has left; does nothing if the request has come to its end already."""
        if request.state in TERMINAL:
            return
        waiting = request.state is State.QUEUED
        advance(request, State.CANCELLED)
        if waiting:
            self._queue.cancelled(request)

    def step(self, now: float) -> Actions:
        """Close every batch that may leave now; drop what has expired."""
        actions = Actions([], self._queue.expire(now))
        if self._parts:
            self._expire_parts(now, actions)
        while self._parts or self._queue.live:
            upstream = self.upstreams.next_free()
            if upstream is None:
                break
            if self._parts:
                actions.send.append(self._send_part(upstream, now))
            elif not self._close_next(upstream, now, actions):
                break
        return actions

    def wake_at(self, now: float) -> float:
        """When `step` must be called again if nothing happens before; ``inf`` if never."""
        wake = min((r.deadline for part in self._parts for r in part.requests), default=math.inf)
        if not self._queue.live:
            return wake
        wake = min(wake, self._queue.expires_at)
        if self.upstreams.next_free():
            departures = [group.departs_at(now) for group in self._queue.by_age()]
            wake = min(wake, *departures)
        return wake

    def finished(self, batch: Batch, failed: Sequence[bool], now: float) -> list[Request]:
        """The instance answered ``batch``, item by item.

        Args:
            batch: as it was sent.
            failed: for each member, whether the function failed on it.
            now: when the answer came.

        Returns:
            The members whose callers still wait, each now DONE or FAILED.
        """
        self._landed(batch)
        if not any(failed):
            executed = Executed(len(batch.requests), now - batch.sent, now)
            self.exec_time.observe(executed.size, executed.exec_s)
            self._policy.observe(executed)
        waiting = []
        for request, bad in zip(batch.requests, failed, strict=True):
            if request.state is State.IN_FLIGHT:
                advance(request, State.FAILED if bad else State.DONE)
                waiting.append(request)
        return waiting

    def broken(self, batch: Batch, fault: Fault, now: float) -> list[Request]:
        """The instance failed ``batch`` as a whole; its members are sent again, or have failed.

        Returns:
            The members to tell, now FAILED; the others will be in a later batch.
        """
        self._landed(batch)
        riding = [request for request in batch.requests if request.state is State.IN_FLIGHT]
        parts = self._isolation.divide(batch, riding, fault, now) if riding else []
        if not parts:
            return self._lost(batch, riding, fault, now)
        for request in riding:
            advance(request, State.BATCHED)
        again = fault is Fault.UNSENT
        lineage = batch.lineage or (None if again else Lineage(len(riding)))
        attempt = batch.attempt + 1 if again else 1
        self._parts.extend([_Part(part, attempt, lineage) for part in parts])
        return []

    def give_up(self) -> list[Request]:
        """The function cannot be started: fail whatever waits, and return it."""
        failed = [*self._queue, *[request for part in self._parts for request in part.requests]]
        failed = [request for request in failed if request.state not in TERMINAL]
        for request in failed:
            advance(request, State.FAILED)
        self._queue = Queue()
        self._parts.clear()
        return failed

    def drain(self) -> None:
        """From now on whatever waits leaves as soon as an instance is free, full or not."""
        self._draining = True

    def predicted_finish(self, now: float) -> float:
        """When a request that arrives now can expect its answer; ``now`` while little is known."""
        upstreams = self.upstreams.up
        if not upstreams or not self.exec_time.settled:
            return now
        if len(self._flying) < upstreams:
            return now + self.exec_time.mean(1)
        ends = [b.sent + self.exec_time.mean(len(b.requests)) for b in self._flying.values()]
        rounds = self._queue.live // self.batch_max / upstreams
        before_s = rounds * self.exec_time.mean(self.batch_max)
        # By the time it leaves, later arrivals will have filled its batch.
        return max(now, min(ends)) + before_s + self.exec_time.bound(self.batch_max)

    def _objection(self, request: Request, now: float) -> Refusal | None:
        if request.deadline <= now:
            return Refusal.EXPIRED
        if self._queue.live >= self._queue_max:
            return Refusal.QUEUE_FULL
        if self.shedding.mode != "off" and request.deadline < math.inf:
            late = self.predicted_finish(now) > request.deadline
            if self.shedding.refuses(late=late, now=now):
                return Refusal.LATE
        return None

    def _close_next(self, upstream: Upstream, now: float, actions: Actions) -> bool:
        """Let one batch leave with ``upstream``, if one may."""
        limit = min(self.batch_max, upstream.batch_max)
        for group in self._queue.by_age():
            waiting = Waiting(now, group.live, limit, self.exec_time, group.first)
            size, late = self._policy.decide(waiting)
            size = max(1, min(size, limit))
            closed = self._closed(group, size, now)
            if closed:
                actions.expired.extend(self._queue.give_up(group, min(late, group.live - 1)))
                requests = self._queue.take(group, size, self._batch_bytes_max)
                actions.send.append(self._send(requests, upstream, closed, now))
                return True
        return False

    def _closed(self, group: Group, size: int, now: float) -> Closed | None:
        if group.live >= size:
            return Closed.FULL
        if self._draining:
            return Closed.DRAIN
        return Closed.DEPARTURE if group.due(now) else None

    def _expire_parts(self, now: float, actions: Actions) -> None:
        """Drop from the divided batches those who have left or whose deadline has passed."""
        parts, self._parts = self._parts, deque()
        for requests, attempt, lineage in parts:
            staying = []
            for request in requests:
                if request.state is not State.BATCHED:
                    continue
                if request.deadline <= now:
                    advance(request, State.EXPIRED)
                    actions.expired.append(request)
                else:
                    staying.append(request)
            if staying:
                self._parts.append(_Part(staying, attempt, lineage))

    def _send_part(self, upstream: Upstream, now: float) -> Batch:
        part = self._parts.popleft()
        batch = self._send(part.requests, upstream, Closed.ISOLATION, now)
        batch.attempt, batch.lineage = part.attempt, part.lineage
        return batch

    def _send(
        self, requests: list[Request], upstream: Upstream, closed: Closed, now: float
    ) -> Batch:
        for request in requests:
            if request.state is State.QUEUED:
                advance(request, State.BATCHED)
            advance(request, State.IN_FLIGHT)
        self._batches += 1
        self.upstreams.sent(upstream, len(requests))
        batch = Batch(self._batches, requests, upstream, closed, now)
        self._flying[batch.id] = batch
        return batch

    def _landed(self, batch: Batch) -> None:
        batch.upstream.in_flight -= 1
        del self._flying[batch.id]

    def _lost(self, batch: Batch, riding: list[Request], fault: Fault, now: float) -> list[Request]:
        """Nothing is left to try for these: they have failed."""
        if len(batch.requests) == 1 and fault in (Fault.ANSWERED, Fault.DIED):
            fingerprint = self._fingerprint(batch.requests[0])
            self._isolation.failed_alone(fingerprint, batch.lineage, now)
        for request in riding:
            advance(request, State.FAILED)
        return riding
