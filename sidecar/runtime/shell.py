"""The loop between sockets and the core: events in, actions out, one step per loop iteration.

Every event marks the batcher dirty; one `step` runs at the end of the same event-loop iteration,
so that every request that was readable in it can join the batch. Only a batch that is full already
leaves at once. There is no timer while nothing waits, and no task per request: one per batch.

When thousands of sockets are readable, an iteration takes long, and what it reads has lain in its
socket for up to the length of the one before. Requests are charged for that, or a sidecar that
cannot keep up would take every one of them for fresh.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from functools import partial
from typing import TYPE_CHECKING

from carpool import errors, wire
from carpool.errors import (
    CarpoolError,
    DeadlineMissed,
    FunctionFault,
    NotFound,
    Overloaded,
    QueueFull,
)
from carpool.http.client import ConnectionFailed
from sidecar.core.batch import Refusal
from sidecar.core.isolation import Fault
from sidecar.runtime import choosing, egress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from carpool.http.server import Exchange
    from sidecar.core.batch import Batch
    from sidecar.core.batcher import Batcher
    from sidecar.core.load import Load
    from sidecar.core.request import Request
    from sidecar.runtime.fleet import Fleet
    from sidecar.runtime.front import Front
    from sidecar.runtime.ingress import Ingress
    from sidecar.runtime.instances import Instance
    from sidecar.runtime.ledger import Ledger
    from sidecar.runtime.metrics import Metrics
    from sidecar.runtime.relay import Relay

__all__ = ["Shell"]

log = logging.getLogger(__name__)

_RESTED_S = 0.002  # the loop waited so long for an event that nothing lay unread
_VARIANT_HEADER = "x-carpool-variant"
_FAILED_FROM = 500  # an item's status from which it counts as failed by the function


class Shell:
    """Serves the requests of one function.

    Args:
        batcher: the core.
        ingress: reads exchanges.
        metrics: counts.
        ledger: remembers batches.
        fleet: the instances.
        exec_timeout_s: how long one batch may take.

    Attributes:
        failing: tells why the function cannot be started; empty while it can.
        load: counts what there is to do, for a scaler; None without one.
        front: speaks with the scaler, where plans come from there; None elsewhere.
        starving: called when somebody begins to wait while no instance can be reached.
        relay: takes whole batches that another sidecar has formed; None where nobody does.
    """

    def __init__(
        self,
        batcher: Batcher,
        ingress: Ingress,
        metrics: Metrics,
        ledger: Ledger,
        fleet: Fleet,
        exec_timeout_s: float,
    ) -> None:
        self._batcher = batcher
        self._ingress = ingress
        self._metrics = metrics
        self._ledger = ledger
        self._exec_timeout_s = exec_timeout_s
        self._fleet = fleet
        self._loop = asyncio.get_running_loop()
        self._now = time.monotonic  # the loop's own axis; its clock stands still in an iteration
        self._stepping = False
        self._began = self._ended = 0.0
        self._unread_s = 0.0
        self._told: dict[Refusal, errors.Answer] = {}  # in this iteration: many are told the same
        self._timer: asyncio.TimerHandle | None = None
        self._wake_at = math.inf
        self._rides: set[asyncio.Task[None]] = set()
        self._draining = False
        self._starved = False
        self.failing: Callable[[], str] = str
        self.load: Load | None = None
        self.front: Front | None = None
        self.starving: Callable[[], None] = lambda: None
        self.relay: Relay | None = None
        metrics.watch(batcher)

    def changed(self) -> None:
        """An instance came up or went down, the plan is another, or the function cannot start."""
        self._batcher.changed()
        if self.failing():
            self._fail(self._batcher.give_up(), self._does_not_start())
        self._dirty()

    def drain(self) -> None:
        """Not ready any more; let what waits leave at once."""
        self._draining = True
        self._batcher.drain()
        self._dirty()

    def __call__(self, exchange: Exchange) -> None:
        """The HTTP application."""
        if exchange.target.startswith("/_/") or exchange.target == "/metrics":
            self._own(exchange)
            return
        if self.relay and self.relay.takes(exchange):
            return
        if self.failing():
            raise self._does_not_start()
        self._dirty(exchange.received)
        request = self._ingress.read(exchange, self._unread_s)
        chooses = request.demand is not None or self._fleet.selecting is not None
        if chooses:
            choosing.admitted(request, self._fleet, planned=self.front is not None)
        if self.load:
            self.load.arrived(request.app, exchange.received)
        if chooses and self._unfit(exchange, request):
            return
        refusal = self._batcher.admit(request, exchange.received)
        if refusal:
            self._refuse(exchange, refusal)
            return
        exchange.on_gone = partial(self._gone, request)
        if self._batcher.full:
            self._step()

    def _own(self, exchange: Exchange) -> None:
        """The sidecar's own endpoints; probes never wait in the queue."""
        path = exchange.path
        if path == "/_/health":
            exchange.reply(503 if self._draining else 200, b"OK", "text/plain")
        elif path == "/_/ready":
            reason = self._not_ready()
            body = reason.encode() or b"OK"
            headers = [("x-carpool-failing", "true")] if self.failing() else []
            at_once = sum(i.upstream.at_once for i in self._fleet if i.upstream.at_once > 1)
            if at_once:  # for the sidecar in front, whose batches are passed on
                headers.append((wire.AT_ONCE_HEADER, str(at_once)))
            exchange.reply(503 if reason else 200, body, "text/plain; charset=utf-8", headers)
        elif path == "/metrics":
            exchange.reply(200, self._metrics.render(), "text/plain; version=0.0.4; charset=utf-8")
        else:
            msg = f"{path}: expected /_/health, /_/ready or /metrics"
            raise NotFound(msg)

    def _not_ready(self) -> str:
        if self._draining:
            return "draining"
        if self.front:
            return self.front.waits_for()
        if any(instance.up for instance in self._fleet):
            return ""
        reasons = [instance.reason for instance in self._fleet]
        return self.failing() or "; ".join(reasons) or "no instance"

    def _does_not_start(self) -> Overloaded:
        return Overloaded(f"the function does not start: {self.failing()}", retry_after_s=1.0)

    def _unfit(self, exchange: Exchange, request: Request) -> bool:
        """Whether nothing fits what the request demands; if so its caller has been told."""
        selecting = self._fleet.selecting
        if request.demand is None or selecting is None:
            return False
        error = choosing.objection(request.demand, selecting)
        if error is not None:
            self._metrics.refused("unfit")
            exchange.fail(error)
        return error is not None

    def _refuse(self, exchange: Exchange, refusal: Refusal) -> None:
        self._metrics.refused(refusal.value)
        told = self._told.get(refusal)
        if told is None:
            told = self._told[refusal] = errors.answer(self._refusal(refusal))
        exchange.reply(told.status, told.body, headers=told.headers)

    def _refusal(self, refusal: Refusal) -> CarpoolError:
        if refusal is Refusal.EXPIRED:
            return DeadlineMissed("the deadline had passed on arrival")
        waiting, clear_s = self._batcher.queued, self._batcher.clear_s(self._now())
        if refusal is Refusal.LATE:
            msg = f"{waiting} requests wait: this one would be answered after its deadline"
            return Overloaded(msg, clear_s)
        return QueueFull(f"{waiting} requests wait already", clear_s)

    def _gone(self, request: Request) -> None:
        self._batcher.cancel(request)
        self._metrics.ended("cancelled")

    # -- stepping ---------------------------------------------------------------------------

    def _dirty(self, since: float | None = None) -> None:
        """Something happened, in the event-loop iteration that began at ``since``."""
        if not self._stepping:
            self._stepping = True
            self._loop.call_soon(self._end_of_iteration)
            self._began = since if since is not None else self._now()
            waited = self._began - self._ended > _RESTED_S
            self._unread_s = 0.0 if waited else self._unread_s

    def _end_of_iteration(self) -> None:
        self._stepping = False
        self._ended = self._now()
        self._unread_s = self._ended - self._began  # for what is read in the next one
        self._told.clear()
        self._step()
        if self.front and self.front.starving is not self._starved:
            self._starved = not self._starved
            if self._starved:
                self.starving()

    def _step(self) -> None:
        now = self._now()
        actions = self._batcher.step(now)
        for batch in actions.send:
            instance = self._fleet.of(batch.upstream)
            sending = egress.Sending(batch, instance.pool)
            ride = self._loop.create_task(self._ride(batch, instance, sending))
            self._rides.add(ride)
            ride.add_done_callback(self._rides.discard)
        if actions.expired:
            self._expire(actions.expired)
        self._arm(self._batcher.wake_at(now))

    def _arm(self, wake_at: float) -> None:
        """Keep one timer; one that fires too early costs less than re-arming it every step."""
        if wake_at >= self._wake_at:
            return
        if self._timer:
            self._timer.cancel()
        self._wake_at = wake_at
        self._timer = self._loop.call_at(wake_at, self._alarm)

    def _alarm(self) -> None:
        self._timer = None
        self._wake_at = math.inf
        self._step()

    # -- batches ----------------------------------------------------------------------------

    async def _ride(self, batch: Batch, instance: Instance, sending: egress.Sending) -> None:
        metrics = self._metrics
        metrics.batch_closed(batch.closed.value)
        metrics.size.observe(batch.seats)
        for request in batch.requests:
            metrics.wait.observe(batch.sent - request.arrived)
        try:
            answers = await sending.answers(self._exec_timeout_s)
        except CarpoolError as error:
            self._broken(batch, instance, error)
        except Exception:
            log.exception("sending a batch of %d failed", len(batch.requests))
            self._broken(batch, instance, FunctionFault("internal error"))
        else:
            self._answered(batch, answers)
        self._fleet.let_go()
        self._dirty()

    def _answered(self, batch: Batch, answers: egress.Answers) -> None:
        failed = [status >= _FAILED_FROM for status in answers.statuses]
        now = self._now()
        waiting = set(self._batcher.finished(batch, failed, now))
        if self.load:
            self.load.executed(batch, now, idle=self._batcher.idle)
        if self._batcher.full:
            self._step()  # the next batch first: the instance is idle
        self._metrics.execution.observe(batch.exec_s)
        self._metrics.padded(*answers.padding)
        self._ledger.record(batch, "answered")
        explained = self._explained(batch)
        variant = batch.upstream.variant
        chosen = ((_VARIANT_HEADER, variant),) if variant else ()
        failures = 0
        for request, status, head, body in zip(batch.requests, *answers[:3], strict=True):
            if request not in waiting:
                continue
            failures += status >= _FAILED_FROM
            headers = (*head.headers, *chosen) if chosen else head.headers
            if request.payload.explain:
                wait = ("x-carpool-wait-seconds", f"{batch.sent - request.arrived:.6f}")
                headers = (*headers, *explained, wait)
            request.payload.exchange.reply(status, body, head.content_type, headers)
        self._metrics.ended("done", len(waiting) - failures)
        self._metrics.ended("failed", failures)

    def _broken(self, batch: Batch, instance: Instance, error: CarpoolError) -> None:
        self._metrics.broken += 1
        if isinstance(error, ConnectionFailed):
            instance.lost(str(error))
        fault = _fault(error)
        failed = self._batcher.broken(batch, fault, self._now())
        self._ledger.record(batch, fault.value)
        self._fail(failed, error)

    def _explained(self, batch: Batch) -> list[tuple[str, str]]:
        """What callers who asked are told of the ride."""
        told = {
            "batch": len(batch.requests),
            "closed": batch.closed.value,
            "exec-seconds": f"{batch.exec_s:.6f}",
            "expected-seconds": f"{batch.expected_s:.6f}" if batch.expected_s else "",
            "plan": batch.plan if batch.plan is not None else "",
        }
        return [(f"x-carpool-{name}", str(value)) for name, value in told.items() if value != ""]

    def _fail(self, requests: Iterable[Request], error: CarpoolError) -> None:
        for request in requests:
            request.payload.exchange.fail(error)
            self._metrics.ended("failed")

    def _expire(self, requests: Iterable[Request]) -> None:
        error = DeadlineMissed("the deadline passed while the request waited for an instance")
        for request in requests:
            request.payload.exchange.fail(error)
            self._metrics.ended("expired")


def _fault(error: CarpoolError) -> Fault:
    """What an error of `egress.send` says about the batch."""
    if isinstance(error, ConnectionFailed):
        return Fault.DIED if error.sent else Fault.UNSENT
    return Fault.HUNG if isinstance(error, DeadlineMissed) else Fault.ANSWERED
