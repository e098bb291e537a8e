"""Calls that the provider holds for a replica with enough of them."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import uvloop

from carpool.http.exchange import Exchange
from faas_stack.provider.held_calls import HeldCalls
from faas_stack.provider.proxy import Proxy
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = 1000.0
LATE_AFTER_S = 0.1


class Stage:
    """A replica with a number of free places, and a record of what becomes of its held calls."""

    def __init__(self, room: int = 0) -> None:
        self.room = room
        self.calls: Any = SimpleNamespace(late_after_s=LATE_AFTER_S)
        self._set_full()
        self.sent: list[str] = []
        self.refused: list[str] = []
        self.left: list[str] = []
        self.emptied = 0
        self.held = HeldCalls(self, cast("Any", self))

    def _set_full(self) -> None:
        self.calls.full = self.room <= 0

    def hold(self, name: str, age_s: float) -> Exchange:
        exchange = Exchange("POST", name, ())
        exchange.received = NOW - age_s
        self.held.hold(exchange, cast("Any", None))
        return exchange

    def accept(self, exchange: Exchange) -> None:
        self.sent.append(exchange.target)
        self.room -= 1
        self._set_full()

    def refuse_held(self, exchange: Exchange, *_: object) -> None:
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
        stage = Stage(room=2)
        for name, age_s in (("oldest", 0.09), ("older", 0.05), ("newest", 0.01)):
            stage.hold(name, age_s)
        stage.held.step(NOW)
        assert (["newest", "older"], []) == (stage.sent, stage.refused)

    played(play)


def test_late_calls_are_refused_some_at_a_time_and_never_sent() -> None:
    """Refusals take little of the time; a call that would be late takes no place."""

    def play() -> None:
        stage = Stage(room=100)
        for number in range(20):
            stage.hold(str(number), 0.5)
        stage.held.step(NOW)
        assert ([], [str(number) for number in range(8)]) == (stage.sent, stage.refused)
        stage.held.step(NOW)
        assert 16 == len(stage.refused)

    played(play)


def test_no_call_is_held_for_more_than_two_seconds() -> None:
    """All that have waited for two seconds are refused, however many there are."""

    def play() -> None:
        stage = Stage()
        for number in range(20):
            stage.hold(str(number), 2.1)
        stage.held.step(NOW)
        assert 20 == len(stage.refused)

    played(play)


def test_calls_in_time_wait_for_room() -> None:
    """While the replica is full, calls that can still be in time stay."""

    def play() -> None:
        stage = Stage()
        stage.hold("a", 0.05)
        stage.held.step(NOW)
        assert ([], []) == (stage.sent, stage.refused)
        stage.room = 1
        stage._set_full()
        stage.held.step(NOW)
        assert ["a"] == stage.sent

    played(play)


def test_held_calls_go_on_when_the_connection_is_lost() -> None:
    """Without a connection nothing is known about the replica, so all are sent."""

    def play() -> None:
        stage = Stage()
        stage.hold("a", 1.5)
        stage.calls.full, stage.calls.late_after_s = False, math.inf
        stage.room = 1
        stage.held.step(NOW)
        assert ["a"] == stage.sent
        stage.hold("b", 1.5)
        stage.calls = None
        stage._set_full = lambda: None  # type: ignore[method-assign]
        stage.held.step(NOW)
        assert ["a", "b"] == stage.sent

    played(play)


def test_call_whose_client_leaves_is_counted_and_forgotten() -> None:
    """A client that leaves ends its held call."""

    def play() -> None:
        stage = Stage()
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


class FullReplica:
    """A replica that has as many calls as it can answer in time."""

    def __init__(self) -> None:
        self.calls = self
        self.full = True
        self.late_after_s = LATE_AFTER_S
        self.refused = 0
        self.sent: list[bytes] = []

    def count_refused(self) -> None:
        self.refused += 1

    def acquire(self) -> None:
        pass

    def send(self, head: bytes, *_: object) -> int:
        self.sent.append(head)
        return len(self.sent)


def test_proxy_holds_plain_calls_of_a_full_replica_and_refuses_late_ones() -> None:
    """Plain calls are held, and those that would be late get 503; the replica counts them."""
    replica, seen = FullReplica(), list[int]()
    function = SimpleNamespace(division=None, invocations=0, answers=Counter(), call_limit_s=60.0)
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
