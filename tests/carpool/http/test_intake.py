"""Requests that are parked, parsed later, or refused from their bytes alone."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from typing import TYPE_CHECKING

import pytest

from carpool import errors
from carpool.http.exchange import whole
from carpool.http.intake import Intake, Pace
from sidecar.testing import FakeClock
from tests.carpool.http.edge import LIMITS, Socketless, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from carpool.http.server import Exchange, Server

PACE = Pace(quantum_s=0.01, share=0.1)
PATIENCE_S = 0.1
REFUSED = whole(errors.answer(errors.Overloaded("later")), b"")
BURST = 40  # more reads than are free


def post(number: int, body: bytes = b"") -> bytes:
    """A whole request; all with bodies of one length have the same head."""
    body = body or b"%04d" % number
    return b"POST /f HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


class Scene:
    """A server with an intake whose time and iterations are the test's.

    Attributes:
        served: bodies that the application was given, in order.
        shut: whether it refuses whatever comes.
        refused: tokens of what was refused unparsed.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        server._app = self
        self.clock = FakeClock(1.0)
        self.served: list[bytes] = []
        self.refused: list[str] = []
        self.closed = self.shut = False
        self.soon: list[Callable[[], None]] = []
        self.timers: list[Callable[[], None]] = []
        self.read_s = 0.0  # of one read
        self.intake = server.intake = Intake(
            self, PACE, self.clock, self.soon.append, lambda _, then: self.timers.append(then)
        )

    def __call__(self, exchange: Exchange) -> None:
        """The application: echoes."""
        self.clock.advance(self.read_s)
        self.served.append(exchange.body)
        if self.intake.parsing:
            self.intake.learn(exchange, "app")
        exchange.reply(200, exchange.body, "text/plain")

    def refuses(self, waited_s: float) -> bool:
        """Whether it is closed is decided by the test."""
        return self.shut or waited_s > PATIENCE_S

    def refusal(self, token: str) -> bytes:
        """Refuse; the first reads of a test have taught the head."""
        self.refused.append(token)
        return REFUSED

    def iterate(self) -> None:
        """The end of an iteration of the event loop."""
        due, self.soon[:] = list(self.soon), []
        for each in due:
            each()

    def wake(self) -> None:
        """The timers fire."""
        due, self.timers[:] = list(self.timers), []
        for each in due:
            each()

    def crowd(self, count: int, first: int = 0) -> list[Socketless]:
        """So many clients send a request each, all read in this iteration."""
        clients = [Socketless(self.server) for _ in range(count)]
        for number, client in enumerate(clients, first):
            client.feed(post(number))
        return clients


@contextlib.asynccontextmanager
async def scenes() -> AsyncIterator[Scene]:
    """A scene, all of whose clients leave in the end."""
    limits = LIMITS.__class__(connections=1000)
    async with serving(limits=limits) as server:
        yield Scene(server)


def statuses(client: Socketless) -> list[bytes]:
    """Of the answers that a client got, in order."""
    return re.findall(rb"HTTP/1\.1 (\d{3}) ", client.sent)


def run(test: Callable[[Scene], None]) -> None:
    """Run a test's body with a scene."""

    async def body() -> None:
        async with scenes() as scene:
            test(scene)

    asyncio.run(body())


def numbers(*ranges: range) -> list[bytes]:
    """The bodies with these numbers."""
    return [b"%04d" % number for each in ranges for number in each]


def test_quick_reads_are_parsed_as_they_come() -> None:
    """However many there are in an iteration, while they take less than a quantum."""

    def body(scene: Scene) -> None:
        scene.crowd(200)
        assert numbers(range(200)) == scene.served

    run(body)


def test_the_freshest_are_served_first_and_the_rest_in_later_iterations() -> None:
    """A quantum of reads as they come, then a quantum from the end of those parked."""

    def body(scene: Scene) -> None:
        scene.read_s = 0.001
        scene.crowd(80)
        assert numbers(range(43)) == scene.served  # 32 are free, then time counts
        assert 37 == len(scene.intake)
        scene.iterate()
        assert numbers(range(79, 68, -1)) == scene.served[43:]
        scene.crowd(2, first=90)
        assert numbers(range(90, 92)) == scene.served[54:]  # who comes now is fresher still
        while scene.intake:
            scene.iterate()
        assert 82 == len(set(scene.served))
        assert not scene.refused

    run(body)


def parked(scene: Scene, count: int) -> list[Socketless]:
    """So many clients whose requests are parked, with a head that is known."""
    scene.shut = scene.closed = True
    scene.intake.closing()
    (teacher,) = scene.crowd(1, first=9999)
    scene.shut = False
    scene.iterate()
    assert [b"200"] == statuses(teacher)
    scene.served.clear()
    scene.shut = scene.closed = True
    scene.intake.closing()
    return scene.crowd(count)


def test_who_has_waited_too_long_is_refused_unparsed_and_can_ask_again() -> None:
    """The application sees nothing of it; the connection stays in step."""

    def body(scene: Scene) -> None:
        clients = parked(scene, 5)
        scene.shut = False
        scene.clock.advance(0.2)
        scene.iterate()
        assert [[b"503"]] * 5 == [statuses(client) for client in clients]
        assert (["app"] * 5, []) == (scene.refused, scene.served)
        for number, client in enumerate(clients):
            client.feed(post(number))
        assert numbers(range(5)) == scene.served
        assert [[b"503", b"200"]] * 5 == [statuses(client) for client in clients]

    run(body)


def test_all_wait_while_the_application_is_closed_and_the_oldest_are_refused_first() -> None:
    """In the time that refusals may take; who is left when it opens is served, freshest first."""

    def body(scene: Scene) -> None:
        clients = parked(scene, 300)
        scene.clock.advance(0.06)
        slow = scene.refusal

        def refusal(token: str) -> bytes:
            scene.clock.advance(0.00005)
            return slow(token)

        scene.refusal = refusal  # type: ignore[method-assign]
        scene.iterate()
        refused = len(scene.refused)
        assert 64 <= refused <= 70  # 5 ms saved, of which each takes 50 us and half as much again
        assert all(client.sent for client in clients[:refused])
        assert not any(client.sent for client in clients[refused:])
        scene.wake()
        assert refused + 6 >= len(scene.refused)  # a tenth of the time that has passed
        refused = len(scene.refused)
        scene.clock.advance(0.01)
        scene.wake()
        assert refused + 12 <= len(scene.refused) <= refused + 17
        scene.shut = False
        scene.wake()
        assert numbers(range(299, 289, -1)) == scene.served[:10]
        assert len(scene.served) + len(scene.refused) == 300

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
        parked(scene, 1)
        probe = Socketless(scene.server)
        probe.feed(data)
        assert 1 == len(scene.intake)

    run(body)


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        (b"", [b"503"]),
        (post(2), [b"200", b"200"]),
        (post(2)[:20], [b"200"]),
        (b"rubbish\r\n\r\n", [b"200", b"400"]),
    ],
)
def test_only_what_is_exactly_one_request_is_refused_unparsed(
    extra: bytes, expected: list[bytes]
) -> None:
    """With anything more behind it, the parser decides where requests begin and end."""

    def body(scene: Scene) -> None:
        (client,) = parked(scene, 1)
        client.feed(extra)
        scene.clock.advance(0.005)
        scene.iterate()
        assert expected == statuses(client)

    run(body)


@pytest.mark.parametrize(
    "data",
    [
        b"POST /f HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n",
        b"POST /f HTTP/1.0\r\nhost: x\r\ncontent-length: 4\r\n\r\nabcd",
        b"POST /f HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 4\r\n\r\nabcd",
        post(1) + post(2),
    ],
)
def test_no_other_framing_is_learned(data: bytes) -> None:
    """What is not one request with a plain length, on a connection that stays, is always parsed."""

    def body(scene: Scene) -> None:
        parked(scene, 0)
        for _ in range(2):
            Socketless(scene.server).feed(data)
            scene.clock.advance(0.005)
            scene.iterate()
        assert not scene.refused
        assert b"abcd" in scene.served or b"0001" in scene.served

    run(body)


def test_who_leaves_is_forgotten_and_a_server_that_closes_serves_the_rest() -> None:
    """Nothing that was read is lost, and no memory either (`serving` counts)."""

    def body(scene: Scene) -> None:
        clients = parked(scene, 6)
        clients[0].hang_up()
        clients[1].hang_up()
        for client in clients[:2]:
            client._protocol.connection_lost(None)
        assert 4 == len(scene.intake)
        scene.server.close()
        assert sorted(numbers(range(2, 6))) == sorted(scene.served)
        assert [[b"200"]] * 4 == [statuses(client) for client in clients[2:]]

    run(body)


@pytest.mark.parametrize("seed", range(30))
def test_answers_stay_in_step_however_requests_are_cut_and_whatever_is_refused(seed: int) -> None:
    """Each client gets one answer a request, in order: its own echo, or a refusal."""

    def body(scene: Scene) -> None:
        chance = random.Random(seed)
        scene.read_s = 0.001
        clients = [Socketless(scene.server) for _ in range(60)]
        bodies: list[list[bytes]] = [[] for _ in clients]
        rest = [b""] * len(clients)
        for turn in range(12):
            for which in chance.sample(range(len(clients)), len(clients)):
                if not rest[which]:
                    asked = [
                        b"%02d%02d" % (which, turn + 20 * i)
                        for i in range(chance.choice((1, 1, 2)))
                    ]
                    bodies[which] += asked
                    rest[which] = b"".join(post(0, each) for each in asked)
                size = chance.choice((len(rest[which]), len(rest[which]), 7, 60))
                clients[which].feed(rest[which][:size])
                rest[which] = rest[which][size:]
            scene.shut = chance.random() < 0.5
            scene.clock.advance(chance.choice((0.0, 0.02, 0.2)))
            scene.iterate()
            scene.wake()
        scene.shut = False
        for client, left in zip(clients, rest, strict=True):
            client.feed(left)
        while scene.soon or scene.timers:
            scene.clock.advance(0.01)
            scene.iterate()
            scene.wake()
        for client, asked in zip(clients, bodies, strict=True):
            answers = bytes(client.sent).split(b"HTTP/1.1 ")[1:]
            assert len(asked) == len(answers)
            for wanted, answer in zip(asked, answers, strict=True):
                assert answer[:3] == b"503" or (answer[:3] == b"200" and answer.endswith(wanted))
        assert scene.refused or seed

    run(body)
