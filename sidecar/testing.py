"""Fakes for policy authors and tests: a clock moved by hand, a function with a script.

`Drive` runs a real `Batcher` in simulated time: no event loop, no sleep, exact times. A few lines
are enough to test a policy::

    drive = Drive(MyPolicy(MyPolicy.Params()), ScriptedFunction(lambda size: 0.01 + 0.001 * size))
    ends = drive.run([(0.001 * i, 0.2) for i in range(100)])
    assert all(end.state is State.DONE for end in ends)
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from sidecar.core.batch import Fault
from sidecar.core.batcher import Batcher
from sidecar.core.dispatch import Route, Upstream
from sidecar.core.request import TERMINAL, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from sidecar.core.admission.shedding import Shedding
    from sidecar.core.batch import Batch
    from sidecar.core.policy import BatchPolicy
    from sidecar.core.request import State

__all__ = ["Arrival", "BatchRun", "Drive", "End", "FakeClock", "ScriptedFunction", "Stuck"]


class FakeClock:
    """Time that moves only when `advance` or `advance_to` is called.

    Attributes:
        now: seconds.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the time, like ``time.monotonic``."""
        return self.now

    def advance(self, seconds: float) -> float:
        """Let ``seconds`` pass; return the new time."""
        self.now += seconds
        return self.now

    def advance_to(self, when: float) -> float:
        """Let time pass until ``when``, if that is later; return the time."""
        self.now = max(self.now, when)
        return self.now


@dataclass(frozen=True, slots=True)
class ScriptedFunction:
    """A function with scripted behaviour.

    Attributes:
        exec_s: execution time of a batch by its size, seconds.
        fails: whether the function fails on a request, item by item.
        breaks: whether a batch with this request in it fails as a whole.
        fault: how such a batch fails.
    """

    exec_s: Callable[[int], float]
    fails: Callable[[Request], bool] = field(default=lambda _: False)
    breaks: Callable[[Request], bool] = field(default=lambda _: False)
    fault: Fault = Fault.ANSWERED


class Arrival(NamedTuple):
    """One arriving request: its time, its budget, and what it may be batched with.

    Its caller leaves if there is no response after ``patience_s``.
    """

    at: float
    budget_s: float = math.inf
    key: Hashable = "key"
    app: str = "*"
    item_count: int = 1
    background: bool = False
    patience_s: float = math.inf


class End(NamedTuple):
    """The state in which a request ended, and when."""

    request: Request
    state: State
    at: float


class BatchRun(NamedTuple):
    """One batch: when it left, its size in items, why it closed, its instance, members and end."""

    at: float
    size: int
    closed: str
    upstream: str
    ids: tuple[int, ...]
    until: float


class Stuck(AssertionError):
    """Raised when requests wait that will never be sent."""


class Drive:
    """Runs a batcher against a scripted function in simulated time.

    Args:
        policy: the batch policy to drive.
        function: what every instance does with a batch.
        instances: planned share of each instance.
        batch_max, queue_max, shedding: the batcher's limits.

    Attributes:
        clock: the simulated time.
        batches: every batch that ran, in order.
    """

    def __init__(
        self,
        policy: BatchPolicy,
        function: ScriptedFunction,
        *,
        instances: Iterable[float] = (1.0,),
        batch_max: int = 32,
        queue_max: int = 1024,
        shedding: Shedding | None = None,
    ) -> None:
        self.clock = FakeClock()
        self.batches: list[BatchRun] = []
        self.batcher = Batcher(policy, batch_max=batch_max, queue_max=queue_max, shedding=shedding)
        shares = {f"i{number}": share for number, share in enumerate(instances)}
        upstreams = [Upstream(name, batch_max, name, up=True) for name in shares]
        self.batcher.replan(policy, {"*": Route(shares)}, upstreams)
        self._function = function
        self._ends: list[End] = []
        self._running: list[tuple[float, int, Batch]] = []
        self._leaving: list[tuple[float, int, Request]] = []
        self._busy_until: dict[str, float] = {}
        self._ids = count(1)

    def run(self, arrivals: Iterable[Arrival | tuple[float, float]]) -> list[End]:
        """Run all ``arrivals`` until nothing is left; return how each request ended, in order."""
        coming = sorted((Arrival(*a) for a in arrivals), key=lambda a: a.at)[::-1]
        while coming or not self.batcher.idle:
            self._advance(coming)
            self._return_batches()
            self._callers_leave()
            while coming and coming[-1].at <= self.clock.now:
                self._arrive(coming.pop())
            self._step()
        return self._ends

    def _advance(self, coming: list[Arrival]) -> None:
        times = [self.batcher.wake_at(self.clock.now)]
        if coming:
            times.append(coming[-1].at)
        times += [queue[0][0] for queue in (self._running, self._leaving) if queue]
        if math.isinf(min(times)):
            msg = f"no further event is due, but {self.batcher.queued} requests are still waiting"
            raise Stuck(msg)
        self.clock.advance_to(min(times))

    def _arrive(self, arrival: Arrival) -> None:
        now = self.clock.now
        request = Request(
            next(self._ids),
            arrival.key,
            now,
            deadline=arrival.at + arrival.budget_s,
            item_count=arrival.item_count,
            background=arrival.background,
            app=arrival.app,
        )
        if self.batcher.admit(request, now):
            self._end([request])
        elif arrival.patience_s < math.inf:
            heapq.heappush(self._leaving, (now + arrival.patience_s, request.id, request))

    def _step(self) -> None:
        now = self.clock.now
        actions = self.batcher.step(now)
        self._end(actions.expired)
        for batch in actions.send:
            where, ids = batch.upstream.name, tuple(request.id for request in batch.requests)
            done = max(now, self._busy_until.get(where, 0.0)) + self._function.exec_s(
                batch.item_count
            )
            self.batches.append(
                BatchRun(now, batch.item_count, batch.close_reason.value, where, ids, done)
            )
            self._busy_until[where] = done
            heapq.heappush(self._running, (done, batch.id, batch))

    def _return_batches(self) -> None:
        now = self.clock.now
        while self._running and self._running[0][0] <= now:
            batch = heapq.heappop(self._running)[2]
            if any(map(self._function.breaks, batch.requests)):
                self._end(self.batcher.broken(batch, self._function.fault, now))
                batch.upstream.came_up()  # it is restarted at once
            else:
                failed = list(map(self._function.fails, batch.requests))
                self._end(self.batcher.finished(batch, failed, now))

    def _callers_leave(self) -> None:
        while self._leaving and self._leaving[0][0] <= self.clock.now:
            request = heapq.heappop(self._leaving)[2]
            if request.state not in TERMINAL:
                self.batcher.cancel(request)
                self._end([request])

    def _end(self, requests: Iterable[Request]) -> None:
        self._ends += [End(request, request.state, self.clock.now) for request in requests]
