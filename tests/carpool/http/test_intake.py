"""Requests that are parked under overload: which are served first, and which are refused when."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from typing import TYPE_CHECKING

import pytest

from carpool.http.intake import Intake
from sidecar.testing import FakeClock
from tests.carpool.http.edge import LIMITS, Socketless, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from carpool.http.server import Exchange, Server

PATIENCE_S = 0.1  # older requests are refused
PARSE_S = 0.0001  # of one request
AT_ONCE = 32  # most that are served in a turn


def post(number: int) -> bytes:
    """A whole request."""
    return b"POST /f HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\n%04d" % number


class Scene:
    """A server with an intake that is parking; time and iterations are the test's.

    Attributes:
        served: bodies that the application was given and served, in order.
        refused: bodies that it refused.
        shut: whether it refuses whatever comes.
        answer: to plain requests that are refused unparsed; empty: all are parsed.
        unparsed: how many were refused so.
        soon: what is due in the next iteration.
        timers: what is due later.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        server._app = self
        self.clock = FakeClock(1.0)
        self.served: list[bytes] = []
        self.refused: list[bytes] = []
        self.shut = False
        self.answer = b""
        self.unparsed = 0
        self.soon: list[Callable[[], None]] = []
        self.timers: list[Callable[[], None]] = []
        self.intake = server.intake = Intake(
            self.refuses,
            self.refuse,
            self.clock,
            self.soon.append,
            lambda _, then: self.timers.append(then),
            batch_max=AT_ONCE,
        )
        self.intake.parking = True

    def __call__(self, exchange: Exchange) -> None:
        """The application: echoes, or refuses."""
        self.clock.advance(PARSE_S)
        refused = self.refuses(self.intake.waited_s)
        self.intake.parking |= refused
        (self.refused if refused else self.served).append(exchange.body)
        exchange.reply(503 if refused else 200, exchange.body, "text/plain")

    def refuses(self, waited_s: float) -> bool:
        """Whether it is closed is decided by the test."""
        return self.shut or waited_s > PATIENCE_S

    def refuse(self) -> bytes:
        """Refuse a plain request unparsed, if the test wants that."""
        self.unparsed += bool(self.answer)
        return self.answer

    def turn(self) -> None:
        """The next iteration of the event loop, and a millisecond passes."""
        for calls in (self.soon, self.timers):
            due, calls[:] = list(calls), []
            for each in due:
                each()
        self.clock.advance(0.001)

    def crowd(self, *numbers: int) -> list[Socketless]:
        """Each of so many clients sends a request."""
        clients = [Socketless(self.server) for _ in numbers]
        for number, client in zip(numbers, clients, strict=True):
            client.feed(post(number))
        return clients


@contextlib.asynccontextmanager
async def scenes() -> AsyncIterator[Scene]:
    """A scene, all of whose clients leave in the end."""
    async with serving(limits=LIMITS.__class__(connections=10_000)) as server:
        yield Scene(server)


def run(test: Callable[[Scene], None]) -> None:
    """Run a test's body with a scene."""

    async def body() -> None:
        async with scenes() as scene:
            test(scene)

    asyncio.run(body())


def statuses(client: Socketless) -> list[bytes]:
    """Of the answers that a client got, in order."""
    return re.findall(rb"HTTP/1\.1 (\d{3}) ", client.sent)


def bodies(numbers: range) -> list[bytes]:
    """The bodies with these numbers."""
    return [b"%04d" % number for number in numbers]


def test_without_overload_requests_are_parsed_as_they_come() -> None:
    """However many they are."""

    def body(scene: Scene) -> None:
        scene.intake.parking = False
        scene.crowd(*range(200))
        assert bodies(range(200)) == scene.served
        assert not scene.soon

    run(body)


@pytest.mark.parametrize("late", [True, False])
def test_some_are_served_in_each_turn_until_none_is_parked(*, late: bool) -> None:
    """In order while the oldest has time to spare, else the newest first."""

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


def test_who_has_waited_too_long_is_refused_and_can_ask_again() -> None:
    """While there is nothing else to serve, this may take all the time."""

    def body(scene: Scene) -> None:
        clients = scene.crowd(*range(30))
        scene.clock.advance(2 * PATIENCE_S)
        for turns in range(1, 5):
            scene.turn()
            assert bodies(range(min(8 * turns, 30))) == scene.refused
        assert [[b"503"]] * 30 == [statuses(client) for client in clients]
        clients[0].feed(post(40))
        assert [b"503", b"200"] == statuses(clients[0])
        assert [b"0040"] == scene.served

    run(body)


@pytest.mark.parametrize("shut", [True, False])
def test_under_overload_the_oldest_are_refused_in_a_part_of_the_time(*, shut: bool) -> None:
    """Whether the application refuses all requests, or has as many as it can serve."""

    def body(scene: Scene) -> None:
        scene.crowd(*range(300))
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


def test_no_request_is_parked_for_much_longer_than_two_seconds() -> None:
    """Then refusals take the time that they take."""

    def body(scene: Scene) -> None:
        scene.shut = True
        clients = scene.crowd(*range(300))
        scene.clock.advance(2.0)
        for _ in range(300 // 8 + 1):
            scene.turn()
        assert 300 == len(scene.refused)
        assert [[b"503"]] * 300 == [statuses(client) for client in clients]

    run(body)


def test_while_closed_requests_wait_and_are_served_when_it_opens() -> None:
    """It is asked again every millisecond."""

    def body(scene: Scene) -> None:
        scene.shut = True
        scene.crowd(*range(20))
        scene.turn()
        assert bodies(range(8)) == scene.refused
        scene.shut = False
        scene.turn()
        assert bodies(range(8, 20)) == scene.served
        assert not scene.intake.parking

    run(body)


def test_a_turn_ends_with_a_refusal_though_none_was_expected() -> None:
    """The application is asked about one in eight only; the next turn asks it again."""

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
def test_what_is_no_new_post_is_parsed_at_once(data: bytes) -> None:
    """Probes are answered whatever happens."""

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
def test_what_follows_a_parked_request_stays_behind_it(extra: bytes, expected: list[bytes]) -> None:
    """The parser gets the bytes in their order."""

    def body(scene: Scene) -> None:
        (client,) = scene.crowd(1)
        client.feed(extra)
        scene.turn()
        assert expected == statuses(client)
        assert b"0001" == scene.served[0]

    run(body)


def test_who_leaves_is_forgotten_and_a_server_that_closes_serves_the_rest() -> None:
    """Nothing that was read is lost, and no memory either (`serving` counts)."""

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
    """The parser alone decides about all others; the connection of a plain one stays in step."""

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


@pytest.mark.parametrize("seed", range(30))
def test_answers_stay_in_step_however_requests_are_cut_and_whatever_is_refused(seed: int) -> None:
    """Each client gets one answer a request, in order, with the request's own body."""

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
