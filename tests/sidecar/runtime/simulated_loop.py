"""A sidecar's event loop in simulated time, with the real intake and batcher, and its clients.

The costs of reading, parsing, answering and refusing are fixed numbers, so that a flood that no
machine could send is simulated as exactly as a low load. The handler has its own core.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from carpool.http.intake import Intake
from carpool.http.refusal_budget import RefusalBudget
from sidecar.core.admission.shedding import Shedding
from sidecar.core.batcher import Batcher
from sidecar.core.dispatch import Upstream
from sidecar.core.request import DEADLINE_SHARE, Request
from sidecar.policies.deadline import Deadline
from sidecar.runtime.batch_loop import QUANTUM
from sidecar.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.core.batch import Batch

__all__ = ["Costs", "Loop", "Outcome"]

_HEAD = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
_ITERATION_S = 30e-6
_OK, _EXPIRED, _REFUSED = 200, 504, 503
_RESTED_S = 0.002


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of the sidecar's core, and handler seconds per batch."""

    read_s: float = 4e-6
    parse_s: float = 26e-6
    answer_s: float = 18e-6
    refuse_s: float = 10e-6
    batch_s: float = 300e-6
    handler_s: Callable[[int], float] = lambda size: 0.0005 + 0.00001 * size


@dataclass(slots=True)
class Outcome:
    """Results of the requests that were due in one stretch."""

    due: int = 0
    in_time: int = 0
    good: int = 0
    refused: int = 0
    unsent: int = 0
    waits_s: list[float] = field(default_factory=list)  # for a refusal


class _Connection:
    """Client connection as the intake sees it."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.due = 0.0

    def between_requests(self) -> bool:
        """Return True, as every connection is always between requests."""
        return True

    def unpark(self, data: bytes) -> None:
        """Parse the one request of the connection."""
        del data
        self._loop.parsed(self)

    def answer(self, data: bytes, answer: bytes) -> None:
        """Charge the cost of a refusal and end the request."""
        del data, answer
        self._loop.clock.advance(self._loop.costs.refuse_s)
        self._loop.ended(self, _REFUSED)


class Loop:
    """One sidecar under open-loop load from a limited number of connections.

    Attributes:
        pauses: start and duration of each stop of the process in seconds, in order of time.
    """

    def __init__(
        self, *, slo_s: float, batch_max: int, connections: int, costs: Costs, mode: str = "on"
    ) -> None:
        self.pauses: list[tuple[float, float]] = []
        self.clock = FakeClock()
        self.costs = costs
        self._slo_s = slo_s
        self.batcher = Batcher(
            Deadline(Deadline.Params()),
            batch_max=batch_max,
            queue_max=1024,
            shedding=Shedding(mode),
        )
        self.batcher.upstreams.add(Upstream("a", batch_max, up=True))
        self._soon: list[Callable[[], None]] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self.intake = Intake(
            self._refuses,
            self._refuse,
            self._soon.append,
            self._later,
            batch_max,
            RefusalBudget(self.clock, self.clock),
        )
        self._free = [_Connection(self) for _ in range(connections)]
        self._readable: list[_Connection] = []
        self._running: list[tuple[float, int, Batch]] = []
        self._handler_free = 0.0
        self._ids = count(1)
        self._dues: list[float] = []
        self._unread_s = 0.0
        self._stretches: list[tuple[float, Outcome]] = []
        self._began = 0.0

    def run(self, *stretches: tuple[float, float], seed: int = 1) -> list[Outcome]:
        """Apply each rate for its duration in turn and return the outcome of each stretch."""
        chance, at = random.Random(seed), 0.0
        for rate_rps, span_s in stretches:
            end = at + span_s
            self._stretches.append((end, Outcome()))
            while (at := at + chance.expovariate(rate_rps)) < end:
                self._dues.append(at)
            at = end
        self._dues.reverse()
        while self._dues or self._readable or self._running or self.intake.parked:
            self._iterate()
        return [outcome for _, outcome in self._stretches]

    def parsed(self, connection: _Connection) -> None:
        """Admit a request that has been read and parsed."""
        now = self.clock.advance(self.costs.parse_s)
        waited_s = self._unread_s + self.intake.waited_s
        request = Request(
            next(self._ids),
            "k",
            now,
            deadline=now + (self._slo_s - waited_s) * DEADLINE_SHARE,
            payload=connection,
        )
        if self.batcher.admit(request, now):
            self.clock.advance(self.costs.refuse_s)
            self.ended(connection, _REFUSED)
            self.intake.parking = True
        elif self.batcher.has_full_batch:
            self._step()

    def ended(self, connection: _Connection, status: int) -> None:
        """Record a response and free the client's connection for another request."""
        outcome = self._outcome(connection.due)
        latency_s = self.clock.now - connection.due
        if status == _REFUSED:
            outcome.refused += 1
            outcome.waits_s.append(latency_s)
        elif status == _OK:
            outcome.good += 1
            outcome.in_time += latency_s <= self._slo_s
        self._free.append(connection)

    def _outcome(self, due: float) -> Outcome:
        return next(outcome for end, outcome in self._stretches if due < end)

    def _later(self, delay_s: float, then: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (self.clock.now + delay_s, next(self._ids), then))

    def _send_due(self) -> None:
        while self._dues and self._dues[-1] <= self.clock.now:
            due = self._dues.pop()
            outcome = self._outcome(due)
            outcome.due += 1
            if not self._free:
                outcome.unsent += 1
                continue
            connection = self._free.pop()
            connection.due = due
            self._readable.append(connection)

    def _iterate(self) -> None:
        rested = self._rest()
        self._unread_s = 0.0 if rested else self._unread_s
        self._began = self.clock.now
        soon, self._soon[:] = list(self._soon), []
        for each in soon:
            each()
        while self._timers and self._timers[0][0] <= self.clock.now:
            heapq.heappop(self._timers)[2]()
        if self.pauses and self.pauses[0][0] <= self.clock.now:
            self.clock.advance(self.pauses.pop(0)[1])
        self._send_due()
        readable, self._readable = self._readable, []
        self.clock.advance(_ITERATION_S)
        for connection in readable:
            self._read(connection)
        while self._running and self._running[0][0] <= self._began:
            self._land(heapq.heappop(self._running)[2])
        took_s = self.clock.now - self._began
        if took_s > QUANTUM * self._slo_s:
            self.intake.parking = True
        self._unread_s = min(took_s, self._slo_s) / 2
        self._step()

    def _rest(self) -> bool:
        """Sleep until there is something to do; return whether that took a while."""
        if self._readable or self._soon:
            return False
        times = [each[0][0] for each in (self._timers, self._running) if each]
        times += self._dues[-1:]
        times.append(self.batcher.wake_at(self.clock.now))
        before = self.clock.now
        return self.clock.advance_to(min(times)) - before > _RESTED_S

    def _read(self, connection: _Connection) -> None:
        self.clock.advance(self.costs.read_s)
        if not (self.intake.parking and self.intake.park(connection, _HEAD)):
            connection.unpark(_HEAD)

    def _refuse(self) -> bytes:
        return b"refused" if self.batcher.admission.refuse_unparsed(self.clock.now) else b""

    def _refuses(self, waited_s: float) -> bool:
        left_s = (self._slo_s - self._unread_s - waited_s) * DEADLINE_SHARE
        return self.batcher.admission.would_refuse(left_s, self.clock.now)

    def _step(self) -> None:
        actions = self.batcher.step(self.clock.now)
        for request in actions.expired:
            self.clock.advance(self.costs.refuse_s)
            self.ended(request.payload, _EXPIRED)
        for batch in actions.send:
            now = self.clock.advance(self.costs.batch_s)
            self._handler_free = max(now, self._handler_free) + self.costs.handler_s(
                batch.item_count
            )
            heapq.heappush(self._running, (self._handler_free, batch.id, batch))

    def _land(self, batch: Batch) -> None:
        now = self.clock.now
        for request in self.batcher.finished(batch, [False] * len(batch.requests), now):
            self.clock.advance(self.costs.answer_s)
            self.ended(request.payload, _OK)
