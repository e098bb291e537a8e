"""Requests parked under overload: which are served first, and which are refused when."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from typing import TYPE_CHECKING

import pytest

from carpool.http.intake import Intake
from carpool.http.refusal_budget import RefusalBudget
from sidecar.testing import FakeClock
from tests.carpool.http.edge import LIMITS, Socketless, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from carpool.http.server import Exchange, Server

PATIENCE_S = 0.1  # older requests are refused
PARSE_S = 0.0001  # of one request
AT_ONCE = 32  # most that are served in a turn


def post(number: int) -> bytes:
    """Return a complete request."""
    return b"POST /f HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\n%04d" % number


class Scene:
    """A server whose intake is parking; the test controls time and event-loop iterations.

    Attributes:
        served: bodies that the application served, in order.
        refused: bodies that the application refused, in order.
        shut: whether the application refuses every request.
        fails: whether the application can judge no request.
        answer: response to plain requests that are refused unparsed; if empty, all are parsed.
        unparsed: number of requests refused unparsed.
        soon: callbacks due in the next iteration.
        timers: callbacks due later.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        server._app = self
        self.clock = FakeClock(1.0)
        self.served: list[bytes] = []
        self.refused: list[bytes] = []
        self.shut = self.fails = False
        self.answer = b""
        self.unparsed = 0
        self.soon: list[Callable[[], None]] = []
        self.timers: list[Callable[[], None]] = []
        self.intake = server.intake = Intake(
            self.refuses,
            self.refuse,
            self.soon.append,
            lambda _, then: self.timers.append(then),
            AT_ONCE,
            RefusalBudget(self.clock, self.clock),
        )
        self.intake.parking = True

    def __call__(self, exchange: Exchange) -> None:
        """Serve as the application: echo the request, or refuse it."""
        self.clock.advance(PARSE_S)
        refused = self.refuses(self.intake.waited_s)
        self.intake.parking |= refused
        (self.refused if refused else self.served).append(exchange.body)
        exchange.reply(503 if refused else 200, exchange.body, "text/plain")

    def refuses(self, waited_s: float) -> bool:
        """Return whether requests that waited for ``waited_s`` are refused."""
        if self.fails:
            raise ZeroDivisionError
        return self.shut or waited_s > PATIENCE_S

    def refuse(self) -> bytes:
        """Refuse a plain request unparsed, if the test has set `answer`."""
        self.unparsed += bool(self.answer)
        return self.answer

    def turn(self) -> None:
        """Run the next iteration of the event loop and advance the clock by a millisecond."""
        for calls in (self.soon, self.timers):
            due, calls[:] = list(calls), []
            for each in due:
                each()
        self.clock.advance(0.001)

    def crowd(self, *numbers: int) -> list[Socketless]:
        """Connect one client per number and send a request from each."""
        clients = [Socketless(self.server) for _ in numbers]
        for number, client in zip(numbers, clients, strict=True):
            client.feed(post(number))
        return clients


@contextlib.asynccontextmanager
async def scenes() -> AsyncIterator[Scene]:
    """Yield a scene, and close its server at the end."""
    async with serving(limits=LIMITS.__class__(connections=10_000)) as server:
        yield Scene(server)


def run(test: Callable[[Scene], None]) -> None:
    """Run a test's body with a scene."""

    async def body() -> None:
        async with scenes() as scene:
            test(scene)

    asyncio.run(body())


def statuses(client: Socketless) -> list[bytes]:
    """Return the statuses of the responses that a client received, in order."""
    return re.findall(rb"HTTP/1\.1 (\d{3}) ", client.sent)


def bodies(numbers: range) -> list[bytes]:
    """Return the bodies with these numbers."""
    return [b"%04d" % number for number in numbers]


def test_requests_are_parsed_on_arrival_without_overload() -> None:
    """Without overload, requests are parsed on arrival, whatever their number."""

    def body(scene: Scene) -> None:
        scene.intake.parking = False
        scene.crowd(*range(200))
        assert bodies(range(200)) == scene.served
        assert not scene.soon

    run(body)


@pytest.mark.parametrize("late", [True, False])
def test_parked_requests_are_served_a_few_per_turn(*, late: bool) -> None:
    """Parked requests are served in order while the oldest has time to spare, else newest first."""

    def body(scene: Scene) -> None:
        scene.crowd(*range(40))
        scene.clock.advance(PATIENCE_S * (0.6 if late else 0.4))
        assert (40, []) == (scene.intake.parked, scene.served)
        scene.turn()
        order = bodies(range(40))[:: -1 if late else 1]
        assert order[:AT_ONCE] == scene.served
        scene.crowd(90)
        scene.turn()
        rest = [b"0090", *order[AT_ONCE:]] if late else [*order[AT_ONCE:], b"0090"]
        assert rest == scene.served[AT_ONCE:]
        assert (False, [], []) == (scene.intake.parking, scene.soon, scene.refused)
        scene.crowd(91)
        assert b"0091" == scene.served[-1]

    run(body)


def test_requests_parked_too_long_are_refused_and_may_be_retried() -> None:
    """Requests that would be late are refused, some in each turn; their clients may try again."""

    def body(scene: Scene) -> None:
        clients = scene.crowd(*range(30))
        scene.clock.advance(2 * PATIENCE_S)
        scene.turn()
        assert scene.refused == bodies(range(len(scene.refused)))
        assert 8 <= len(scene.refused) < 30
        scene.clock.advance(0.1)
        scene.turn()
        assert bodies(range(30)) == scene.refused
        assert [[b"503"]] * 30 == [statuses(client) for client in clients]
        clients[0].feed(post(40))
        assert [b"503", b"200"] == statuses(clients[0])
        assert [b"0040"] == scene.served

    run(body)


@pytest.mark.parametrize("shut", [True, False])
def test_refusals_take_limited_share_of_time_under_overload(*, shut: bool) -> None:
    """Refusals take a limited share of the time, whether the application is closed or busy."""

    def body(scene: Scene) -> None:
        scene.crowd(*range(1000))
        scene.clock.advance(2 * PATIENCE_S)
        scene.shut = shut
        began, turns = scene.clock.now, 0
        while scene.clock.now < began + 0.5:
            if not shut:
                scene.crowd(*range(1000 + AT_ONCE * turns, 1000 + AT_ONCE * (turns + 1)))
            scene.turn()
            turns += 1
        count = len(scene.refused)
        assert bodies(range(count)) == scene.refused
        assert 0.04 * 0.5 < count * PARSE_S < 0.06 * 0.5
        assert (0 if shut else AT_ONCE * turns) == len(scene.served)

    run(body)


def test_requests_wait_while_application_is_closed() -> None:
    """A closed application is asked again every millisecond, and serves the rest once it opens."""

    def body(scene: Scene) -> None:
        scene.shut = True
        scene.crowd(*range(60))
        scene.turn()
        refused = len(scene.refused)
        assert bodies(range(refused)) == scene.refused
        scene.shut = False
        for _ in range(2):
            scene.turn()
        assert bodies(range(refused, 60)) == scene.served
        assert not scene.intake.parking

    run(body)


def test_unexpected_refusal_ends_the_turn() -> None:
    """An unexpected refusal ends the turn, and the remaining requests stay parked."""

    def body(scene: Scene) -> None:
        scene.crowd(*range(20))
        scene.refuses = lambda waited_s: waited_s >= 0  # type: ignore[method-assign]
        scene.turn()
        assert (1, 19) == (len(scene.refused), scene.intake.parked)

    run(body)


@pytest.mark.parametrize(
    "data",
    [
        b"GET /_/health HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n",
        b"\r\n" + post(1),
    ],
)
def test_probes_are_answered_at_once_under_overload(data: bytes) -> None:
    """Probes are answered at once, even under overload."""

    def body(scene: Scene) -> None:
        probe = Socketless(scene.server)
        probe.feed(data)
        assert [b"200"] == statuses(probe)

    run(body)


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        (b"", [b"200"]),
        (post(2), [b"200", b"200"]),
        (post(2)[:20], [b"200"]),
        (b"rubbish\r\n\r\n", [b"200", b"400"]),
    ],
)
def test_bytes_behind_a_parked_request_keep_their_order(
    extra: bytes, expected: list[bytes]
) -> None:
    """The parser gets the bytes of a connection in their order."""

    def body(scene: Scene) -> None:
        (client,) = scene.crowd(1)
        client.feed(extra)
        scene.turn()
        assert expected == statuses(client)
        assert b"0001" == scene.served[0]

    run(body)


def test_closing_server_serves_parked_requests_of_remaining_clients() -> None:
    """Requests read before the server closes are served, and all memory is released."""

    def body(scene: Scene) -> None:
        clients = scene.crowd(*range(6))
        for client in clients[:2]:
            client.hang_up()
            client._protocol.connection_lost(None)
        assert 4 == scene.intake.parked
        scene.server.close()
        assert bodies(range(2, 6)) == sorted(scene.served)
        assert [[b"200"]] * 4 == [statuses(client) for client in clients[2:]]

    run(body)


LENGTH = b"content-length: 4\r\n"
ANSWER = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "body", "plain"),
    [
        (LENGTH, b"abcd", True),
        (b"X-Call-Id: 1\r\n" + LENGTH + b"Connection: keep-alive\r\n", b"abcd", True),
        (LENGTH, b"abcdPOST", False),
        (LENGTH, b"abc", False),
        (LENGTH + LENGTH, b"abcd", False),
        (b"transfer-encoding: chunked\r\n", b"4\r\nabcd\r\n0\r\n\r\n", False),
        (LENGTH + b"Transfer-Encoding: chunked\r\n", b"abcd", False),
        (LENGTH + b"connection: close\r\n", b"abcd", False),
        (LENGTH + b"expect: 100-continue\r\n", b"abcd", False),
        (LENGTH + b"upgrade: h2c\r\n", b"abcd", False),
        (LENGTH + b"X-Carpool-Class: batch\r\n", b"abcd", False),
        (LENGTH + b"Accept: application/json\r\n", b"abcd", True),
        (LENGTH + b"Accept: text/event-stream\r\n", b"abcd", False),
        (b"accept:application/json, Text/Event-Stream\r\n" + LENGTH, b"abcd", False),
        (b"content-length: +4\r\n", b"abcd", False),
        (b"content-length : 4\r\n", b"abcd", False),
        (LENGTH + b" folded: 1\r\n", b"abcd", False),
        (LENGTH + b"a: b\rc\r\n", b"abcd", False),
    ],
)
def test_only_plain_requests_are_refused_unparsed(head: bytes, body: bytes, *, plain: bool) -> None:
    """All other requests are parsed; the connection of a refused plain request stays usable."""

    def test(scene: Scene) -> None:
        scene.answer = ANSWER
        client = Socketless(scene.server)
        client.feed(b"POST /f HTTP/1.1\r\nhost: x\r\n%b\r\n%b" % (head, body))
        scene.clock.advance(2 * PATIENCE_S)
        scene.turn()
        assert plain is (scene.unparsed == 1)
        if plain:
            assert ANSWER == client.sent
            client.feed(post(1))
            scene.turn()
            assert [b"503", b"200"] == statuses(client)

    run(test)


def test_every_parked_request_is_answered_though_the_application_fails() -> None:
    """Requests do not stay parked if none can be judged, and later ones are served as usual."""

    def body(scene: Scene) -> None:
        scene.fails = True
        failed = scene.crowd(*range(100))
        scene.turn()
        assert {(b"500",)} == {tuple(statuses(client)) for client in failed}
        scene.fails = False
        scene.crowd(*range(100, 200))
        scene.turn()
        assert bodies(range(100, 200)) == scene.served

    run(body)


def test_request_is_answered_if_its_refusal_cannot_be_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request that should be refused is not lost if making the refusal fails."""

    def body(scene: Scene) -> None:
        def broken() -> bytes:
            raise ZeroDivisionError

        monkeypatch.setattr(scene.server.intake, "_refuse", broken)
        crowd = scene.crowd(*range(100))
        scene.shut = True
        scene.clock.advance(1.0)
        scene.turn()
        assert {(b"503",)} == {tuple(statuses(client)) for client in crowd}

    run(body)


@pytest.mark.parametrize("seed", range(30))
def test_each_request_gets_its_own_response_in_order(seed: int) -> None:
    """Each client gets one response per request, in order, with the request's own body."""

    def body(scene: Scene) -> None:
        chance = random.Random(seed)
        clients = [Socketless(scene.server) for _ in range(60)]
        sent: list[list[bytes]] = [[] for _ in clients]
        rest = [b""] * len(clients)
        for turn in range(12):
            for which in chance.sample(range(len(clients)), len(clients)):
                if not rest[which]:
                    asked = [100 * which + turn + 20 * i for i in range(chance.choice((1, 1, 2)))]
                    sent[which] += [b"%04d" % each for each in asked]
                    rest[which] = b"".join(post(each) for each in asked)
                size = chance.choice((len(rest[which]), len(rest[which]), 7, 60))
                clients[which].feed(rest[which][:size])
                rest[which] = rest[which][size:]
            scene.shut = chance.random() < 0.5
            scene.clock.advance(chance.choice((0.0, 0.02, 0.2)))
            scene.intake.parking |= chance.random() < 0.5
            scene.answer = chance.choice((b"", ANSWER))
            scene.turn()
        scene.shut = False
        for client, left in zip(clients, rest, strict=True):
            client.feed(left)
        while scene.soon or scene.timers:
            scene.turn()
        for client, asked_for in zip(clients, sent, strict=True):
            answers = bytes(client.sent).split(b"HTTP/1.1 ")[1:]
            assert len(asked_for) == len(answers)
            for wanted, answer in zip(asked_for, answers, strict=True):
                assert answer[-4:] == wanted or b"HTTP/1.1 " + answer == ANSWER
        assert scene.refused or scene.unparsed

    run(body)
