"""Calls that the provider holds for a replica with enough of them."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import uvloop

from carpool.http.exchange import Exchange
from carpool.http.refusal_budget import RefusalBudget
from faas_stack.provider.held_calls import HeldCalls
from faas_stack.provider.proxy import Proxy
from sidecar.testing import FakeClock
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = 1000.0
HOLD_MAX_S = 0.1
REFUSAL_S = 0.001


class Replica:
    """A replica with a number of free places."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.hold_max_s = HOLD_MAX_S
        self.told = 0

    @property
    def full(self) -> bool:
        return self.room <= 0

    def count_refused(self, count: int) -> None:
        self.told += count


class Stage:
    """A function with replicas, and a record of what becomes of its held calls.

    Args:
        rooms: free places of each replica.
    """

    def __init__(self, *rooms: int) -> None:
        self.replicas = [Replica(room) for room in rooms]
        self.clock = FakeClock(NOW)
        self.sent: list[str] = []
        self.refused: list[str] = []
        self.left: list[str] = []
        self.emptied = 0
        budget = RefusalBudget(self.clock, self.clock)
        self.held = HeldCalls(self, cast("Any", self), budget)

    def hold(self, name: str, age_s: float) -> Exchange:
        exchange = Exchange("POST", name, ())
        exchange.received = NOW - age_s
        self.held.hold(exchange)
        return exchange

    def choose(self, _: object) -> Any:
        return min(self.replicas, key=lambda replica: replica.full, default=None)

    def accept(self, exchange: Exchange) -> None:
        assert exchange.on_gone is None
        self.sent.append(exchange.target)
        if replica := self.choose(None):
            replica.room -= 1

    def refuse_held(self, exchange: Exchange, *_: object) -> None:
        self.clock.advance(REFUSAL_S)
        self.refused.append(exchange.target)

    def held_left(self, exchange: Exchange, *_: object) -> None:
        self.left.append(exchange.target)

    def none_held(self, _: object) -> None:
        self.emptied += 1


def played(play: Callable[[], None]) -> None:
    """Run ``play`` on an event loop."""

    async def run() -> None:
        play()

    uvloop.run(run())


def test_newest_calls_are_sent_as_far_as_there_is_room() -> None:
    """The newest are sent first, as these can still be answered in time."""

    def play() -> None:
        stage = Stage(2)
        for name, age_s in (("oldest", 0.09), ("older", 0.05), ("newest", 0.01)):
            stage.hold(name, age_s)
        stage.held.step(NOW)
        assert (["newest", "older"], []) == (stage.sent, stage.refused)

    played(play)


def test_held_calls_take_the_room_of_any_replica() -> None:
    """Calls are held for a function, and sent to whichever replica has room."""

    def play() -> None:
        stage = Stage(0, 1, 2)
        for number in range(4):
            stage.hold(str(number), 0.01)
        stage.held.step(NOW)
        assert ["3", "2", "1"] == stage.sent

    played(play)


def test_late_calls_are_never_sent_and_refused_in_a_share_of_the_time() -> None:
    """A call that would be late takes no place; a twentieth of the time is for refusals."""

    def play() -> None:
        stage = Stage(100)
        for number in range(1000):
            stage.hold(str(number), 0.5)
        while stage.clock.now < NOW + 1:
            stage.held.step(stage.clock.now)
            stage.clock.advance(0.005)
        count = len(stage.refused)
        assert ([], [str(number) for number in range(count)]) == (stage.sent, stage.refused)
        assert 0.045 < count * REFUSAL_S < 0.06
        assert count == stage.replicas[0].told

    played(play)


def test_calls_in_time_wait_for_room() -> None:
    """While the replica is full, calls that can still be in time stay."""

    def play() -> None:
        stage = Stage(0)
        stage.hold("a", 0.05)
        stage.held.step(NOW)
        assert ([], []) == (stage.sent, stage.refused)
        stage.replicas[0].room = 1
        stage.held.step(NOW)
        assert ["a"] == stage.sent

    played(play)


def test_held_calls_go_on_when_the_connection_is_lost() -> None:
    """Without a connection nothing is known about the replica, so all are sent."""

    def play() -> None:
        stage = Stage(1)
        stage.hold("a", 1.5)
        stage.replicas[0].hold_max_s = math.inf
        stage.held.step(NOW)
        assert ["a"] == stage.sent
        stage.hold("b", 1.5)
        stage.replicas.clear()
        stage.held.step(NOW)
        assert ["a", "b"] == stage.sent

    played(play)


def test_call_whose_client_leaves_is_counted_and_forgotten() -> None:
    """A client that leaves ends its held call."""

    def play() -> None:
        stage = Stage(0)
        exchange = stage.hold("a", 0.5)
        exchange.tell_gone()
        stage.held.step(NOW)
        assert (["a"], [], []) == (stage.left, stage.refused, stage.sent)

    played(play)


# -- the proxy --------------------------------------------------------------------------------


class Answered(Exchange):
    """A call of ``f`` that records its response."""

    __slots__ = ("status",)

    def __init__(self, *headers: tuple[bytes, bytes], received: float) -> None:
        super().__init__("POST", "/function/f", headers)
        self.received = received
        self.status = 0

    @property
    def peer(self) -> str:
        return ""

    def _respond(self, status: int, *_: object) -> None:
        self.status = status


class Called:
    """A function."""

    division = None
    call_limit_s = 60.0

    def __init__(self) -> None:
        self.invocations = 0
        self.answers = Counter[int]()


class FullReplica:
    """A replica that has as many calls as it can answer in time."""

    def __init__(self) -> None:
        self.calls = self
        self.full = True
        self.hold_max_s = HOLD_MAX_S
        self.refused = 0
        self.sent: list[bytes] = []

    def count_refused(self, count: int) -> None:
        self.refused += count

    def acquire(self) -> None:
        pass

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def send(self, head: bytes, own_lines: bytes, *_: object) -> int:
        self.sent.append(head)
        self.own_lines = own_lines
        return len(self.sent)


def test_proxy_holds_plain_calls_of_a_full_replica_and_refuses_late_ones() -> None:
    """Plain calls are held, and those that would be late get 503; the replica counts them."""
    replica, seen = FullReplica(), list[int]()
    function = Called()
    orchestrator = SimpleNamespace(
        default_namespace="", get=lambda *_: function, choose=lambda _: replica
    )
    metrics = SimpleNamespace(observe=lambda status, *_: seen.append(status))

    async def run() -> None:
        now = asyncio.get_running_loop().time()
        proxy = Proxy(cast("Any", orchestrator), cast("Any", metrics))
        late, fresh = Answered(received=now - 1), Answered(received=now + HANG_S)
        background = Answered((b"x-carpool-class", b"batch"), received=now)
        for exchange in (late, background, fresh):
            proxy.accept(exchange)
        assert (1, 0, 0) == (len(replica.sent), late.status, fresh.status)
        await wait_until_async(lambda: late.status == 503)
        assert (1, Counter({503: 1}), [503]) == (replica.refused, function.answers, seen)
        replica.full = False
        await wait_until_async(lambda: len(replica.sent) == 2)
        assert (0, 3) == (fresh.status, function.invocations)
        await wait_until_async(lambda: not proxy._held)

    uvloop.run(run())
