"""The loop that drives the batcher: events in, actions out, one step per event-loop iteration.

Every event marks the batcher dirty; one `step` runs at the end of the same event-loop iteration,
so that every request that was readable in it can join the batch. Only a batch that is already full
leaves at once. There is no timer while nothing waits, and no task per request, nor per batch if a
connection is idle.

When thousands of sockets are readable, an iteration takes long, and its requests have waited in
their sockets for up to the length of the previous iteration, half of it on average. That wait
counts against a request's deadline; otherwise an overloaded sidecar would consider every request
new. At most half of the objective is counted; otherwise after a long stall every request would
be late forever.
"""

from __future__ import annotations

import asyncio
import math
import time
from functools import partial
from typing import TYPE_CHECKING

from carpool import errors, wire
from carpool.errors import CarpoolError, DeadlineMissed, Overloaded, QueueFull
from carpool.http.http_exchange import encode_answer
from carpool.http.intake import Intake
from carpool.http.refusal_budget import RefusalBudget
from sidecar.core.batch import Refusal
from sidecar.core.request import DEADLINE_SHARE
from sidecar.runtime import variant_demands
from sidecar.runtime.metrics import UNFIT
from sidecar.runtime.readiness import Readiness
from sidecar.runtime.sender import Sender

if TYPE_CHECKING:
    from collections.abc import Callable

    from carpool.http.server import Exchange, Server
    from sidecar.core.batcher import Batcher
    from sidecar.core.cold_start import ColdStart
    from sidecar.core.load_counter import LoadCounter
    from sidecar.core.request import Request
    from sidecar.runtime.compression import Compression
    from sidecar.runtime.ingress import Ingress
    from sidecar.runtime.metrics import Metrics
    from sidecar.runtime.recent_batches import RecentBatches
    from sidecar.runtime.relay import Relay
    from sidecar.runtime.scaler_client.front import Front
    from sidecar.runtime.streams import Streams
    from sidecar.runtime.tracing import Tracing
    from sidecar.runtime.upstreams import FunctionUpstreams

__all__ = ["QUANTUM", "BatchLoop"]

_NOT_BEGUN = ((wire.NOT_BEGUN_HEADER, "true"),)
QUANTUM = 1 / 16  # share of the objective; requests are parked after a longer iteration
_IDLE_S = 0.002  # after a wait of this length, no request was unread


class BatchLoop:
    """Serves the requests of one function.

    Args:
        batcher: the core.
        ingress: reads exchanges.
        metrics: counts requests and batches.
        recent: keeps the last batches.
        upstreams: the instances.
        exec_timeout_s: time limit of one batch.

    Attributes:
        batcher, metrics, upstreams: as given.
        readiness: answers probes, and callers while the function cannot be started.
        load: counts the load for a scaler; None without one.
        front: reports to the scaler and follows its plans; None if this is not a front.
        cold_start: holds requests while no instance can be reached; None if they are not held.
        late_after_ms: the objective, for the provider; 0 if late requests are not refused.
        on_starving: called when requests wait and no instance can be reached any more.
        compression: compresses responses; None if they are not compressed.
        relay: passes whole batches of a front on to the handler; None if there is no front.
        streams: passes on requests whose responses are streamed; None if there are none.
    """

    def __init__(
        self,
        batcher: Batcher,
        ingress: Ingress,
        metrics: Metrics,
        recent: RecentBatches,
        upstreams: FunctionUpstreams,
        exec_timeout_s: float,
    ) -> None:
        self.batcher = batcher
        self._ingress = ingress
        self.metrics = metrics
        self.upstreams = upstreams
        self._loop = asyncio.get_running_loop()
        self._now = time.monotonic  # unlike loop.time(), it also advances within an iteration
        self._stepping = False
        self._began = self._ended = 0.0
        self._unread_s = 0.0  # average time in the socket of the requests read in this iteration
        self._objective_s = math.inf
        self._spent_s = 0.0  # by the last request, before it arrived here
        self._refusal_answers: dict[Refusal, errors.Answer] = {}  # encoded in this iteration
        self._timer: asyncio.TimerHandle | None = None
        self._wake_at = math.inf
        self._starved = False
        self._sender = Sender(self, recent, exec_timeout_s)
        self.readiness = Readiness(upstreams, metrics)
        self.load: LoadCounter | None = None
        self.front: Front | None = None
        self.cold_start: ColdStart | None = None
        self.late_after_ms = 0
        self.on_starving: Callable[[], None] = lambda: None
        self.compression: Compression | None = None
        self.relay: Relay | None = None
        self.streams: Streams | None = None
        self._intake: Intake | None = None
        metrics.watch(batcher)

    @property
    def tracing(self) -> Tracing | None:
        """Tracing of requests; None if none are traced."""
        return self._ingress.tracing

    def shed_early(self, server: Server, objective_s: float, batch_max: int) -> None:
        """Park requests to ``server`` unparsed while more arrive than can be served in time.

        Args:
            server: the server of this application.
            objective_s: the longest objective of the function.
            batch_max: number of requests in a full batch.
        """
        self._objective_s, loop = objective_s, self._loop

        def refuse() -> bytes:
            answer = self._refuse_unparsed()
            return encode_answer(answer, server.date) if answer else b""

        server.overload = self
        self.late_after_ms = math.ceil(1e3 * objective_s)
        self._intake = server.intake = Intake(
            self._refuses,
            refuse,
            loop.call_soon,
            loop.call_later,
            batch_max,
            RefusalBudget(self._now),
        )

    def changed(self) -> None:
        """Note that instances came up or went down, the plan changed, or the function fails."""
        self.batcher.changed()
        if self.cold_start:
            self.cold_start.instances_changed()
        if self.readiness.failing():
            given_up, error = self.batcher.give_up(), self.readiness.does_not_start()
            self._sender.end(given_up.unsent, error, "failed", _NOT_BEGUN)
            self._sender.end(given_up.retried, error, "failed")
        if self.streams:
            self.streams.changed()
        self.step_soon()

    def drain(self) -> None:
        """Stop being ready, and let waiting requests leave at once."""
        self.readiness.draining = True
        self.batcher.drain()
        self.step_soon()

    def __call__(self, exchange: Exchange) -> None:
        """Handle an exchange: answer it, queue it, stream it or refuse it."""
        target = exchange.target
        if target.startswith("/_/") or target == "/metrics" or exchange.method == "OPTIONS":
            self.readiness.answer(exchange)
            return
        if self.relay is not None and self.relay.accepts(exchange):
            return
        self.step_soon(exchange.received)
        waited_s = 0.0 if self._intake is None else self._intake.waited_s
        request = self._ingress.read(exchange, self._unread_s + waited_s)
        self._spent_s = request.payload.spent_s
        if self.readiness.failing():
            error = self.readiness.does_not_start()
            self.metrics.unanswered(request, "failed", error.status, self._now())
            exchange.fail(error, _NOT_BEGUN)
            return
        objection = None
        if request.demand is not None or self.upstreams.variant_router is not None:
            objection = self._choose_variant(request)
        if self.load:
            self.load.arrived(request.counted_as, exchange.received)
        streams = self.streams
        if objection or (streams and streams.rule and streams.takes(exchange)):
            self._pass_by(request, objection)
            return
        if self.cold_start:
            self.cold_start.arrived(request)
        refusal = self.batcher.admit(request, exchange.received)
        if refusal:
            self._refuse(request, refusal)
            return
        exchange.on_gone = partial(self._caller_left, request)
        if self.batcher.has_full_batch:
            self.step_now()

    def _pass_by(self, request: Request, objection: CarpoolError | None) -> None:
        """Stream a request, or refuse it if there is an objection."""
        if objection is None:
            self.stream(request)
            return
        self._count_unfit(request, objection)
        request.payload.exchange.fail(objection)

    def _count_unfit(self, request: Request, objection: CarpoolError) -> None:
        self.metrics.refused(UNFIT)
        self.metrics.unanswered(request, "refused", objection.status, self._now())

    def stream(self, request: Request) -> None:
        """Stream the response to a request in pieces, bypassing the batches."""
        assert self.streams is not None  # noqa: S101 - an instance has said that it streams
        try:
            self.streams.begin(request)
        except QueueFull as error:
            self.metrics.refused(Refusal.QUEUE_FULL.value)
            self.metrics.unanswered(request, "refused", error.status, self._now())
            request.payload.exchange.fail(error)

    def _choose_variant(self, request: Request) -> CarpoolError | None:
        """Choose the variants that may serve a request; return an error if none can.

        Raises:
            CarpoolError: As `variant_demands.settle_demand`; the request is counted as refused, and
                not as load.
        """
        began = time.perf_counter()
        try:
            variant_demands.settle_demand(request, self.upstreams, planned=self.front is not None)
        except CarpoolError as error:
            self._count_unfit(request, error)
            raise
        demand, variant_router = request.demand, self.upstreams.variant_router
        if demand is None or variant_router is None:
            return None
        variant_router.route(demand)  # stores the choice
        self.metrics.selection.observe(time.perf_counter() - began)
        return variant_demands.reason_unfit(demand, variant_router)

    def _refuse(self, request: Request, refusal: Refusal) -> None:
        if refusal is Refusal.EXPIRED and self._intake is not None and self._intake.waited_s:
            refusal = Refusal.LATE  # its deadline passed while it was parked
        if self._intake is not None:
            self._intake.parking = True
        answer = self._refusal_answer(refusal)
        self.metrics.refused(refusal.value)
        self.metrics.unanswered(request, "refused", answer.status, self._now())
        request.payload.exchange.reply(answer.status, answer.body, headers=answer.headers)

    def _refusal_answer(self, refusal: Refusal) -> errors.Answer:
        answer = self._refusal_answers.get(refusal)
        if answer is None:
            answer = self._refusal_answers[refusal] = errors.answer(self._refusal_error(refusal))
        return answer

    def _refuses(self, waited_s: float) -> bool:
        """Return whether an interactive request parked for ``waited_s`` would be refused now."""
        left_s = (self._objective_s - self._unread_s - waited_s) * DEADLINE_SHARE
        return self.batcher.admission.would_refuse(left_s, self._now())

    def _refuse_unparsed(self) -> errors.Answer | None:
        """Count a refused parked request and return the response; None if it must pass."""
        if self._may_stream:
            return None
        now = self._now()
        refusal = self.batcher.admission.refuse_unparsed(now)
        if refusal is None:
            return None
        self.step_soon()
        self._count_unparsed(refusal, now, 1)
        return self._refusal_answer(refusal)

    @property
    def _may_stream(self) -> bool:
        """Whether an unparsed request may be one that is streamed, and so waits for no batch."""
        return bool(self.streams and self.streams.rule and self.streams.rule.paths)

    def _count_unparsed(self, refusal: Refusal, now: float, count: int) -> None:
        self.metrics.refused_unparsed(refusal.value, count)
        if self.load:
            if count > 1:
                self.load.add("*", count - 1)
            self.load.arrived("*", now)

    def full(self) -> bool:
        """Return whether a call that a provider sent now would be refused, or its answer be late.

        Only if calls take long to arrive: processor time is scarce then. It takes as long until
        the provider reads a call, and as long until it has read the answer. Otherwise calls are
        refused here, where more is known about each.
        """
        if self._spent_s < QUANTUM * self._objective_s or self._may_stream:
            return False
        left_s = (self._objective_s - 3 * self._spent_s) * DEADLINE_SHARE
        return self.batcher.admission.would_refuse(left_s, self._now())

    def refused_before(self, count: int) -> None:
        """Count calls that a provider has refused because this function is `full`."""
        if count:
            self._count_unparsed(Refusal.LATE, self._now(), count)

    def _refusal_error(self, refusal: Refusal) -> CarpoolError:
        if refusal is Refusal.EXPIRED:
            return DeadlineMissed("the deadline had passed on arrival")
        batcher = self.batcher
        waiting, clear_s = batcher.queued, batcher.finish_predictor.backlog_s(self._now())
        if refusal is Refusal.LATE:
            reason = f"{waiting} requests are waiting" if waiting else "all instances are busy"
            msg = f"{reason}: this request would be answered after its deadline"
            return Overloaded(msg, clear_s)
        return QueueFull(f"{waiting} requests are already waiting", clear_s)

    def _caller_left(self, request: Request) -> None:
        self.batcher.cancel(request)
        self.metrics.unanswered(request, "cancelled", None, self._now())

    # -- stepping ---------------------------------------------------------------------------

    def step_soon(self, since: float | None = None) -> None:
        """Schedule a step for the end of the event-loop iteration, which began at ``since``."""
        if not self._stepping:
            self._stepping = True
            self._loop.call_soon(self._end_of_iteration)
            self._began = since if since is not None else self._now()
            idle = self._began - self._ended > _IDLE_S
            self._unread_s = 0.0 if idle else self._unread_s

    def _end_of_iteration(self) -> None:
        self._stepping = False
        self._ended = self._now()
        took_s = self._ended - self._began
        self._unread_s = min(took_s, self._objective_s) / 2
        if self._intake is not None and took_s > QUANTUM * self._objective_s:
            self._intake.parking = True
        self._refusal_answers.clear()
        self.step_now()
        if self.front and self.front.starving is not self._starved:
            self._starved = not self._starved
            if self._starved:
                self.on_starving()

    def step_now(self) -> None:
        """Step the batcher now, and carry out its actions."""
        now = self._now()
        actions = self.batcher.step(now)
        for batch in actions.send:
            self._sender.begin(batch)
        if actions.expired:
            msg = "the deadline passed before an instance had answered"
            self._sender.end(actions.expired, DeadlineMissed(msg), "expired")
        self._arm(self.batcher.wake_at(now))

    def _arm(self, wake_at: float) -> None:
        """Arm the timer; firing too early costs less than re-arming it every step."""
        if wake_at >= self._wake_at:
            return
        if self._timer:
            self._timer.cancel()
        self._wake_at = wake_at
        self._timer = self._loop.call_at(wake_at, self._alarm)

    def _alarm(self) -> None:
        self._timer = None
        self._wake_at = math.inf
        self.step_now()
