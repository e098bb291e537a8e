"""The loop between sockets and the core: events in, actions out, one step per loop iteration.

Every event marks the batcher dirty; one `step` runs at the end of the same event-loop iteration,
so that every request that was readable in it can join the batch. Only a batch that is full already
leaves at once. There is no timer while nothing waits, and no task per request: one per batch.

When thousands of sockets are readable, an iteration takes long, and what it reads has lain in its
socket for up to the length of the one before, half of it on average. Requests are charged for that,
or a sidecar that cannot keep up would take every one of them for fresh; but for no more than half
of the objective, or after a long stall nobody would be fresh enough ever again.
"""

from __future__ import annotations

import asyncio
import math
import time
from functools import partial
from typing import TYPE_CHECKING

from carpool import errors, wire
from carpool.errors import CarpoolError, DeadlineMissed
from carpool.http.intake import Intake, Pace
from sidecar.core.batch import Refusal
from sidecar.runtime import choosing
from sidecar.runtime.admission import Admission, told
from sidecar.runtime.readiness import Readiness
from sidecar.runtime.rides import Rides

if TYPE_CHECKING:
    from collections.abc import Callable

    from carpool.http.server import Exchange, Server
    from sidecar.core.batcher import Batcher
    from sidecar.core.load import Load
    from sidecar.core.request import Request
    from sidecar.runtime.fleet import Fleet
    from sidecar.runtime.front import Front
    from sidecar.runtime.holding import Holding
    from sidecar.runtime.ingress import Ingress
    from sidecar.runtime.ledger import Ledger
    from sidecar.runtime.metrics import Metrics
    from sidecar.runtime.relay import Relay

__all__ = ["QUANTUM", "Shell"]

_NOT_BEGUN = ((wire.NOT_BEGUN_HEADER, "true"),)
QUANTUM = 1 / 48  # of the objective; what is read in an iteration later than that is parked
_RESTED_S = 0.002  # the loop waited so long for an event that nothing lay unread


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
        readiness: what probes are told, and callers while the function cannot be started.
        load: counts what there is to do, for a scaler; None without one.
        front: speaks with the scaler, where plans come from there; None elsewhere.
        holding: holds requests while no instance can be reached; None where they are not held.
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
        self._fleet = fleet
        self._loop = asyncio.get_running_loop()
        self._now = time.monotonic  # the loop's own axis; its clock stands still in an iteration
        self._stepping = False
        self._began = self._ended = 0.0
        self._unread_s = 0.0
        self._unread_max_s = math.inf
        self._told: dict[Refusal, errors.Answer] = {}  # in this iteration: many are told the same
        self._timer: asyncio.TimerHandle | None = None
        self._wake_at = math.inf
        self._starved = False
        self._rides = Rides(self, batcher, fleet, metrics, ledger, exec_timeout_s)
        self.readiness = Readiness(fleet, metrics)
        self.load: Load | None = None
        self.front: Front | None = None
        self.holding: Holding | None = None
        self.starving: Callable[[], None] = lambda: None
        self.relay: Relay | None = None
        self._intake: Intake | None = None
        self._admission: Admission | None = None
        metrics.watch(batcher)

    def shed(self, server: Server, objective_s: float) -> None:
        """Refuse what ``server`` reads before it is parsed, where it would be refused after."""
        admission = Admission(self._batcher, self._metrics, server, objective_s)
        admission.load = self.load
        self._unread_max_s = objective_s / 2
        pace = Pace(QUANTUM * objective_s)
        loop = self._loop
        self._admission = admission
        self._intake = server.intake = Intake(
            admission, pace, self._now, loop.call_soon, loop.call_later
        )

    def changed(self) -> None:
        """An instance came up or went down, the plan is another, or the function cannot start."""
        self._batcher.changed()
        if self.holding:
            self.holding.look()
        if self.readiness.failing():
            given_up, why = self._batcher.give_up(), self.readiness.does_not_start()
            self._rides.end(given_up.waiting, why, "failed", _NOT_BEGUN)
            self._rides.end(given_up.between, why, "failed")
        self.step_soon()

    def drain(self) -> None:
        """Not ready any more; let what waits leave at once."""
        self.readiness.draining = True
        self._batcher.drain()
        self.step_soon()

    def __call__(self, exchange: Exchange) -> None:
        """The HTTP application."""
        if self._passed_by(exchange):
            return
        if self.readiness.failing():
            exchange.fail(self.readiness.does_not_start(), _NOT_BEGUN)
            return
        self.step_soon(exchange.received)
        intake = self._intake
        if intake is None or not intake.parsing:
            request = self._ingress.read(exchange, self._unread_s)
        else:
            request = self._parked(exchange, intake)
        objection = None
        if request.demand is not None or self._fleet.selecting is not None:
            objection = self._chosen(request)
        if self.load:
            self.load.arrived(request.app, exchange.received)
        if objection is not None:
            self._metrics.refused("unfit")
            exchange.fail(objection)
            return
        if self.holding:
            self.holding.arrived(request)
        refusal = self._batcher.admit(request, exchange.received)
        if refusal:
            self._refuse(exchange, refusal)
            return
        exchange.on_gone = partial(self._gone, request)
        if self._batcher.full:
            self.step_now()

    def _passed_by(self, exchange: Exchange) -> bool:
        """Whether ``exchange`` is none for the batcher; if so it is being answered."""
        if exchange.target.startswith("/_/") or exchange.target == "/metrics":
            self.readiness.answer(exchange)
            return True
        return self.relay is not None and self.relay.takes(exchange)

    def _parked(self, exchange: Exchange, intake: Intake) -> Request:
        """The request that ``exchange`` carries, which was read some time ago."""
        request = self._ingress.read(exchange, self._unread_s + intake.waited_s)
        token = self._admission.token(exchange, request) if self._admission else None
        if token is not None:
            intake.learn(exchange, token)
        return request

    def _chosen(self, request: Request) -> CarpoolError | None:
        """Settle which variants may serve a request; why none can, if none can."""
        began = time.perf_counter()
        choosing.admitted(request, self._fleet, planned=self.front is not None)
        demand, selecting = request.demand, self._fleet.selecting
        if demand is None or selecting is None:
            return None
        selecting.route(demand)  # is remembered
        self._metrics.selection.observe(time.perf_counter() - began)
        return choosing.objection(demand, selecting)

    def _refuse(self, exchange: Exchange, refusal: Refusal) -> None:
        self._metrics.refused(refusal.value)
        answer = self._told.get(refusal)
        if answer is None:
            answer = self._told[refusal] = errors.answer(self._refusal(refusal))
            self._close()
        exchange.reply(answer.status, answer.body, headers=answer.headers)

    def _close(self) -> None:
        """The first refusal of an iteration: others may not have to be parsed."""
        if self._admission and self._intake:
            self._admission.closed = self._admission.refuses(0.0)
            if self._admission.closed:
                self._intake.closing()

    def _refusal(self, refusal: Refusal) -> CarpoolError:
        if refusal is Refusal.EXPIRED:
            return DeadlineMissed("the deadline had passed on arrival")
        return told(refusal, self._batcher, self._now())

    def _gone(self, request: Request) -> None:
        self._batcher.cancel(request)
        self._metrics.ended("cancelled")

    # -- stepping ---------------------------------------------------------------------------

    def step_soon(self, since: float | None = None) -> None:
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
        unread_s = (self._ended - self._began) / 2  # of what is read in the next one, on average
        self._unread_s = min(unread_s, self._unread_max_s)
        self._told.clear()
        if self._intake and self._admission:
            self._intake.iterated()
            self._admission.unread_s = self._unread_s
        self.step_now()
        if self.front and self.front.starving is not self._starved:
            self._starved = not self._starved
            if self._starved:
                self.starving()

    def step_now(self) -> None:
        """Do what the batcher wants done at this moment."""
        now = self._now()
        actions = self._batcher.step(now)
        for batch in actions.send:
            self._rides.begin(batch)
        if actions.expired:
            msg = "the deadline passed before an instance had answered"
            self._rides.end(actions.expired, DeadlineMissed(msg), "expired")
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
        self.step_now()
