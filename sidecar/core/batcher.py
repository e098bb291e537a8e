"""The batcher: the one place where requests are admitted, gathered, sent and brought to an end.

Theory of operation
-------------------
Events come in as calls (`admit`, `cancel`, `finished`, `broken`, `drain`), each with the time.
After any of them the shell calls `step`, which returns what to do: batches to send, requests that
expired. Between events the shell sleeps until `wake_at`. Nothing else changes the queue.

A batch closes only when a free instance is there to take it (principle: a busy instance never
causes a small batch), and then for the first of these reasons: it is as large as the policy
wants, the departure time of a member has come, or the sidecar drains.

Rules: `step` is the only producer of batches; the state table (`states`) is the only judge of a
request's fate; the same calls give the same actions.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sidecar.core.dispatch import Upstream, Upstreams
from sidecar.core.exec_time import ExecTime
from sidecar.core.policy import Executed, Waiting
from sidecar.core.queue import Group, Queue
from sidecar.core.states import TERMINAL, State, advance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.core.policy import BatchPolicy
    from sidecar.core.request import Request

__all__ = ["Actions", "Batch", "Batcher", "Closed", "Refusal"]


class Closed(enum.Enum):
    """Why a batch closed."""

    FULL = "full"
    DEPARTURE = "departure"
    DRAIN = "drain"


class Refusal(enum.Enum):
    """Why a request was not admitted."""

    QUEUE_FULL = "queue_full"
    EXPIRED = "expired"


@dataclass(slots=True, eq=False)
class Batch:
    """Requests that travel together.

    Attributes:
        id: unique within the sidecar.
        requests: the members, in order of arrival.
        upstream: the instance that takes it.
        closed: why it closed.
        sent: when it was sent.
        predicted_s: execution time expected when it was sent; 0 if nothing was known.
    """

    id: int
    requests: list[Request]
    upstream: Upstream
    closed: Closed
    sent: float
    predicted_s: float


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
    """

    def __init__(self, policy: BatchPolicy, *, batch_max: int, queue_max: int) -> None:
        self._policy = policy
        self.batch_max = batch_max
        self._queue_max = queue_max
        self._queue = Queue()
        self._batches = 0
        self._draining = False
        self.upstreams = Upstreams()
        self.exec_time = ExecTime()
        self.in_flight = 0

    @property
    def queued(self) -> int:
        """Requests waiting."""
        return self._queue.live

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing is in flight."""
        return not self._queue.live and not self.in_flight

    def admit(self, request: Request, now: float) -> Refusal | None:
        """Take a request in, or say why not."""
        refusal = self._objection(request, now)
        if refusal:
            advance(request, State.REFUSED)
            return refusal
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
        while self._queue.live:
            upstream = self.upstreams.next_free()
            if upstream is None or not self._close_next(upstream, now, actions):
                break
        return actions

    def wake_at(self, now: float) -> float:
        """When `step` must be called again if nothing happens before; ``inf`` if never."""
        if not self._queue.live:
            return math.inf
        wake = self._queue.expires_at
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

    def broken(self, batch: Batch) -> list[Request]:
        """The instance failed ``batch`` as a whole; returns the members to tell, now FAILED."""
        self._landed(batch)
        return _fail(batch.requests, State.IN_FLIGHT)

    def give_up(self) -> list[Request]:
        """The function cannot be started: fail whatever waits, and return it."""
        failed = _fail(list(self._queue), State.QUEUED)
        self._queue = Queue()
        return failed

    def drain(self) -> None:
        """From now on whatever waits leaves as soon as an instance is free, full or not."""
        self._draining = True

    def _objection(self, request: Request, now: float) -> Refusal | None:
        if request.deadline <= now:
            return Refusal.EXPIRED
        if self._queue.live >= self._queue_max:
            return Refusal.QUEUE_FULL
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
                requests = self._queue.take(group, size)
                actions.send.append(self._send(requests, upstream, closed, now))
                return True
        return False

    def _closed(self, group: Group, size: int, now: float) -> Closed | None:
        if group.live >= size:
            return Closed.FULL
        if self._draining:
            return Closed.DRAIN
        return Closed.DEPARTURE if group.due(now) else None

    def _send(
        self, requests: list[Request], upstream: Upstream, closed: Closed, now: float
    ) -> Batch:
        for request in requests:
            advance(request, State.BATCHED)
            advance(request, State.IN_FLIGHT)
        self._batches += 1
        self.in_flight += 1
        self.upstreams.sent(upstream, len(requests))
        predicted_s = self.exec_time.mean(len(requests))
        return Batch(self._batches, requests, upstream, closed, now, predicted_s)

    def _landed(self, batch: Batch) -> None:
        batch.upstream.in_flight -= 1
        self.in_flight -= 1


def _fail(requests: list[Request], state: State) -> list[Request]:
    failed = [request for request in requests if request.state is state]
    for request in failed:
        advance(request, State.FAILED)
    return failed
