"""The batcher: the one place where requests are queued, batched, sent and ended.

Theory of operation
-------------------
Events arrive as calls (`admit`, `cancel`, `returned`, `finished`, `broken`, `changed`, `replan`,
`drain`), each with the time. After each of them the event loop (`sidecar.runtime.batch_loop`) calls
`step`, which returns what to do: batches to send, requests that expired. Between events it sleeps
until `wake_at`. An operator may also change the waiting requests: `reroute`, `extend_deadlines`,
`give_up`.

A batch closes only when an instance is free to take it (`dispatch`), or, if it is full, behind a
running batch. So a busy instance never causes a small batch. It closes for the first of these
reasons: it is as large as the policy wants, the departure time of a member has come, or the sidecar
drains.

A batch that failed as a whole comes back through `broken`, which may divide it
(`batch_division`); its requests leave again before those in the queue (`retry_queue`).
`admission.finish_predictor` predicts when an arriving request will be answered.

Rules: only `step` makes batches; only transitions in the table of `request` happen; the same calls
give the same actions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sidecar.core.admission.admission import Admission
from sidecar.core.admission.finish_predictor import FinishPredictor
from sidecar.core.admission.shedding import Shedding
from sidecar.core.batch import Actions, Batch, CloseReason, Fault, GivenUp
from sidecar.core.batch_division import BatchDivision
from sidecar.core.dispatch import Upstreams
from sidecar.core.in_flight import InFlight
from sidecar.core.policy import Executed, Waiting
from sidecar.core.queue import Queue
from sidecar.core.request import TERMINAL, State, advance
from sidecar.core.retry_queue import RetryQueue
from sidecar.core.routing import Routing

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from sidecar.core.batch import Refusal
    from sidecar.core.dispatch import Route, Upstream
    from sidecar.core.group import Group
    from sidecar.core.policy import BatchPolicy
    from sidecar.core.request import Request
    from sidecar.core.retry_queue import Retry
    from sidecar.core.variant_routing import VariantRouter

__all__ = ["Batcher"]

# Read for every request: see `request`.
_QUEUED, _IN_FLIGHT, _DONE, _FAILED = State.QUEUED, State.IN_FLIGHT, State.DONE, State.FAILED


class Batcher:
    """The state machine of one function's sidecar.

    Args:
        policy: decides departure times and batch sizes.
        batch_max: largest batch in items, whatever the policy says.
        queue_max: most requests waiting; interactive and background requests are counted
            separately.
        background_share: least share of the items sent for background requests while others wait.
        shedding: decides whether requests predicted to be late are refused.
        batch_bytes_max: largest batch in bytes; a single larger request travels alone.
        fingerprint: returns equal values for similar requests, such as one that is sent again.
        upstreams: keeps the instances; must be empty.

    Attributes:
        upstreams: the instances.
        shedding: as given.
        finish_predictor: predicts when arriving requests will be answered.
        admission: decides which requests are refused.
    """

    def __init__(  # noqa: PLR0913 - every limit of a function
        self,
        policy: BatchPolicy,
        *,
        batch_max: int,
        queue_max: int,
        background_share: float = 0.1,
        shedding: Shedding | None = None,
        batch_bytes_max: float = math.inf,
        fingerprint: Callable[[Request], Hashable] = lambda request: request.id,
        upstreams: Upstreams | None = None,
    ) -> None:
        self._policy = policy
        self._routing = Routing({}, None, None)
        self._batch_max = batch_max
        self._batch_bytes_max = batch_bytes_max
        self._queue = Queue(background_share)
        self._batches = 0
        self._draining = False
        self._fingerprint = fingerprint
        self._division = BatchDivision()
        self._retries = RetryQueue()
        self._in_flight = InFlight()
        self._has_capacity = True
        self.shedding = shedding or Shedding()
        self.upstreams = upstreams or Upstreams()
        self.finish_predictor = FinishPredictor(
            self._queue, self.upstreams, self._in_flight, self.shedding
        )
        self.admission = Admission(self._queue, queue_max, self.finish_predictor, self.shedding)

    @property
    def queued(self) -> int:
        """Number of requests waiting."""
        return self._queue.request_count

    @property
    def stranded(self) -> set[str]:
        """Applications with waiting requests that no reachable instance may take."""
        return {request.counted_as for request in self._queue.without(self.upstreams.reaches)}

    @property
    def in_flight(self) -> int:
        """Number of batches in flight."""
        return len(self._in_flight)

    @property
    def idle(self) -> bool:
        """Whether no request waits and no batch is in flight."""
        return not (self._queue.request_count or self._retries or self._in_flight)

    def admit(self, request: Request, now: float) -> Refusal | None:
        """Admit a request to the queue, or return why it is refused."""
        request.route = self._routing.route(request)
        refusal = self.admission.refusal(request, now)
        if refusal:
            advance(request, State.REFUSED)
            return refusal
        if self._quarantined(request, now):
            request.key = (request.key, request.id)
        advance(request, _QUEUED)
        self._enqueue(request)
        return None

    def cancel(self, request: Request) -> None:
        """Cancel a request whose caller has left; do nothing if the request has already ended."""
        if request.state in TERMINAL:
            return
        waiting = request.state is _QUEUED
        advance(request, State.CANCELLED)
        if waiting:
            self._queue.discard(request)

    def step(self, now: float) -> Actions:
        """Close every batch that may leave now; drop expired requests."""
        actions = Actions([], self._queue.expire(now))
        if self._in_flight.silent:
            actions.expired.extend(self._in_flight.expire(now))
        if self._retries:
            actions.expired.extend(self._retries.expire(now))
            for retry in list(self._retries):
                self._send_retry(retry, now, actions)
        self._has_capacity = self.upstreams.has_capacity(now)
        while self._has_capacity and self._queue.request_count and self._close_next(now, actions):
            self._has_capacity = self.upstreams.has_capacity(now)
        if actions.expired:
            self.finish_predictor.learn(actions.expired, math.inf, self._in_flight.last_exec_s)
        return actions

    @property
    def has_full_batch(self) -> bool:
        """Whether a full batch waits and an instance can take it, so that `step` is due at once."""
        return self._has_capacity and self._queue.item_count >= self._batch_max

    def wake_at(self, now: float) -> float:
        """Return when `step` must be called again without further events; ``inf`` if never."""
        wake = self._in_flight.expires_at
        if not (self._queue.request_count or self._retries):
            return wake
        expires_at = min(wake, self._queue.expires_at, self._retries.expires_at)
        wake = min(expires_at, self.upstreams.next_ejection_ends(now))
        for group in self._queue.groups_in_order() if self._has_capacity else ():
            if self.upstreams.next_free(group.route, now):
                wake = min(wake, group.departs_at(now))
        return wake

    def returned(self, batch: Batch, now: float) -> None:
        """Note that an instance is done with ``batch``, so that it can take another.

        `finished` or `broken` follows, and notes it as well: a call in advance lets the next batch
        leave before the response is read.
        """
        self._in_flight.remove(batch, now)
        self.changed()

    def finished(
        self,
        batch: Batch,
        failed: Sequence[bool],
        now: float,
        *,
        offends: bool = False,
        executed: bool = True,
    ) -> list[Request]:
        """Handle the response of an instance to ``batch``, item by item.

        Args:
            batch: as it was sent.
            failed: for each member, whether the function failed on it.
            now: when the response came.
            offends: whether it is a single request whose response makes a batch with it fail.
            executed: whether all members were executed, so that their time may be learned.

        Returns:
            The members whose callers still wait, each now DONE or FAILED.
        """
        self.returned(batch, now)
        batch.upstream.succeeded()
        if executed:
            self.finish_predictor.learn(batch.requests, now, batch.exec_s)
        if executed and not any(failed):
            batch.upstream.exec_time.observe(batch.item_count, batch.exec_s)
            self._policy.observe(Executed(batch.item_count, batch.exec_s, now))
            if not offends:
                self._division.function_answered()
        if offends and batch.split_from is not None:
            fingerprint = self._fingerprint(batch.requests[0])
            self._division.failed_alone(fingerprint, batch.split_from, Fault.ANSWERED, now)
        waiting = []
        for request, bad in zip(batch.requests, failed, strict=True):
            if request.state is _IN_FLIGHT:
                advance(request, _FAILED if bad else _DONE)
                waiting.append(request)
        return waiting

    def broken(self, batch: Batch, fault: Fault, now: float) -> list[Request]:
        """Handle the failure of ``batch`` as a whole: its members are retried, or fail.

        Returns:
            The members to report, now FAILED; the others will be in a later batch.
        """
        self.returned(batch, now)
        upstream = batch.upstream
        if fault is Fault.HUNG:
            upstream.hung(now)
        if fault in (Fault.DIED, Fault.HUNG):
            fault = self._in_flight.attribute(batch, fault)
        elif fault is Fault.ANSWERED and batch.split_from is None:
            upstream.failed(now, has_alternative=self.upstreams.has_alternative(upstream, now))
        members = [request for request in batch.requests if request.state is _IN_FLIGHT]
        alone = len(batch.requests) == 1
        quarantined = alone and self._quarantined(batch.requests[0], now)
        retries = self._division.divide(batch, members, fault, now, quarantined=quarantined)
        if not retries:
            return self._fail(batch, members, fault, now)
        for retry in retries:
            if retry.requests:  # else no member waits any more
                self._retries.add(retry)
        self._reroute_retries()  # the plan may have changed since they were sent
        return []

    def replan(
        self,
        policy: BatchPolicy,
        routes: Mapping[str, Route],
        upstreams: Sequence[Upstream],
        version: int | None = None,
        variant_router: VariantRouter | None = None,
    ) -> None:
        """Continue under another plan without losing requests.

        Args:
            policy: decides from now on, also for waiting requests.
            routes: by application; ``*`` is every application without its own. Applications without
                any can use every instance.
            upstreams: the instances from now on; those that stay must be the same objects.
            version: version of the plan, recorded in batches.
            variant_router: chooses for requests with a demand; None if the plan has no variants.
        """
        self.upstreams.keep(upstreams)
        for upstream in upstreams:
            self.upstreams.add(upstream)
        self._policy, self._routing = policy, Routing(routes, version, variant_router)
        self.reroute()

    def route(self, request: Request) -> Route:
        """Return the route of a request, which need not wait here, under the present plan."""
        return self._routing.route(request)

    def reroute(self) -> None:
        """Route the waiting requests again, as the instances or their conditions have changed."""
        self.changed()
        for request in self._queue.clear():
            request.route = self._routing.route(request)
            self._enqueue(request)
        self._reroute_retries()

    def extend_deadlines(self, until: Callable[[Request], float]) -> None:
        """Extend the deadlines of waiting requests to ``until``, as no instance is left."""
        for request in self._queue.clear():
            request.extend_deadline(until(request))
            self._enqueue(request)

    def give_up(self) -> GivenUp:
        """Fail and return all waiting requests, as the function cannot be started."""
        given_up = GivenUp(list(self._queue.clear()), self._retries.requests)
        for request in (*given_up.unsent, *given_up.retried):
            advance(request, _FAILED)
        self._retries.clear()
        return given_up

    def drain(self) -> None:
        """Let waiting requests leave as soon as an instance is free, in full batches or not."""
        self._draining = True

    def mark_silent(self, upstream: Upstream, *, silent: bool) -> None:
        """Record whether an instance is silent; requests that it holds expire while it is."""
        (self._in_flight.silent.add if silent else self._in_flight.silent.discard)(upstream)

    def is_replaceable(self, upstream: Upstream, now: float) -> bool:
        """Return whether other instances may take all requests that ``upstream`` holds."""
        others = [each for each in self.upstreams if each is not upstream and each.available(now)]
        routes = (self._routing.route(request) for request in self._in_flight.held_by(upstream))
        return all(any(map(route.admits, others)) for route in routes)

    def changed(self) -> None:
        """Note that an instance became reachable, unreachable or free."""
        self.finish_predictor.invalidate()
        self._has_capacity = True

    def _quarantined(self, request: Request, now: float) -> bool:
        division = self._division
        return division.any_quarantined(now) and division.is_quarantined(self._fingerprint(request))

    def _enqueue(self, request: Request) -> None:
        request.depart = self._policy.depart(request)
        self._queue.push(request)

    def _reroute_retries(self) -> None:
        """Route requests of failed batches according to the current plan."""
        for request in self._retries.requests:
            request.route = self._routing.route(request)
        self._retries.split_by_route()

    def _close_next(self, now: float, actions: Actions) -> bool:
        """Close one batch if one may leave; return whether one did."""
        for group in self._queue.groups_in_order():
            route = group.route
            upstream = self.upstreams.next_free(route, now)
            starts = now
            if upstream is None:
                upstream = self.upstreams.next_to_pipeline(route, group.item_count, now)
                if upstream is None:
                    continue
                starts = self._in_flight.free_at(upstream, now)
            if self._close(group, upstream, starts, now, actions):
                return True
        return False

    def _close(
        self, group: Group, upstream: Upstream, starts: float, now: float, actions: Actions
    ) -> bool:
        limit = min(self._batch_max, upstream.batch_limit(group.item_count))
        waiting = Waiting(starts, group.item_count, limit, upstream.exec_time, group.first)
        size, late = self._policy.decide(waiting)
        size = max(1, min(size, limit))
        pipelined = not upstream.free
        if pipelined and (size < limit or late):
            return False  # it would only wait there; in the queue it can still change
        reason = self._close_reason(group, size, now)
        if not reason:
            return False
        if late:
            count = min(late, group.request_count - 1)
            actions.expired.extend(self._queue.give_up(group, count))
        if upstream.exec_time.has_settled and group.item_count > size:
            times = upstream.exec_time
            ends = starts + times.bound(size)
            if pipelined:  # the batch before it may also take longer
                ends += times.bound(size) - times.mean(size)
            actions.expired.extend(self._queue.give_up_for_others(group, size, ends))
        requests = self._queue.take(group, size, self._batch_bytes_max)
        actions.send.append(self._batch(requests, upstream, reason, starts, now))
        return True

    def _close_reason(self, group: Group, size: int, now: float) -> CloseReason | None:
        if group.item_count >= size:
            return CloseReason.FULL
        if self._draining:
            return CloseReason.DRAIN
        if group.departs_at(now) > now:
            return None
        oldest = group.oldest()
        return CloseReason.DEPARTURE if oldest.depart > oldest.arrived else CloseReason.IDLE

    def _send_retry(self, retry: Retry, now: float, actions: Actions) -> None:
        route, left = retry.requests[0].route, [retry]
        while left and (upstream := self.upstreams.next_free(route, now)):
            if retry.deaths:
                upstream.exclusive = True
                if upstream.in_flight:
                    continue  # it is now busy until all its batches have returned
            taken, *left = self._retries.take(left[0], upstream.batch_max)
            reason = CloseReason.ISOLATION
            batch = self._batch(taken.requests, upstream, reason, now, now)
            batch.attempt, batch.deaths = retry.attempt, retry.deaths
            batch.split_from = retry.split_from
            actions.send.append(batch)

    def _batch(
        self,
        requests: list[Request],
        upstream: Upstream,
        reason: CloseReason,
        starts: float,
        now: float,
    ) -> Batch:
        item_count = 0
        for request in requests:
            advance(request, _IN_FLIGHT)
            item_count += request.item_count
        self._batches += 1
        expected_s = upstream.exec_time.mean(item_count)
        batch = Batch(
            self._batches,
            requests,
            item_count,
            upstream,
            reason,
            now,
            starts,
            expected_s,
            upstream.instance_class,
            self._routing.version,
        )
        self._in_flight.add(batch)
        self.finish_predictor.invalidate()
        return batch

    def _fail(
        self, batch: Batch, members: list[Request], fault: Fault, now: float
    ) -> list[Request]:
        """Fail ``members``, for which no retry is left, and return all requests that failed."""
        split_from = batch.split_from
        if len(batch.requests) == 1 and fault is not Fault.UNSENT:
            fingerprint = self._fingerprint(batch.requests[0])
            self._division.failed_alone(fingerprint, split_from, fault, now)
        if split_from and split_from.abandoned:
            members = members + self._retries.drop(split_from)
        for request in members:
            advance(request, _FAILED)
        return members
