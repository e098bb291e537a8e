"""Calls in bundles over one kept connection: both ends over real sockets, and bytes in pieces."""

from __future__ import annotations

import asyncio
import contextlib
import random
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool import wire
from carpool.http import call_frames, call_server
from carpool.http.call_client import Calls
from carpool.http.client_connection import AnswerTooLarge, ConnectionFailed
from carpool.http.limits import Limits
from carpool.wire import WireError
from tests.carpool.http.edge import CLOSE, LIMITS, connect, echo, serving, spoken
from tests.docs.snippets import take_one
from tests.effort import scaled
from tests.sidecar.runtime.conftest import on_loop
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from carpool.errors import FunctionFault
    from carpool.http.server import Exchange, Server

HEAD = b"POST /a HTTP\ncontent-type: text/plain\n".replace(b" HTTP", b"")
UPGRADE = b"GET /_/calls HTTP/1.1\r\nconnection: upgrade\r\nupgrade: carpool-calls\r\n\r\n"
SWITCHED = b"HTTP/1.1 101 "
SHOWN = take_one("docs/wire.md", "^GET /_/calls")


class Caller:
    """A receiver; `outcome` is what it is told."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[tuple[int, dict[bytes, bytes], bytes]] = (
            asyncio.get_running_loop().create_future()
        )

    def answered(self, status: int, head: bytes, body: memoryview) -> None:
        self.outcome.set_result((status, dict(call_frames.answer_lines(head)), bytes(body)))

    def failed(self, error: FunctionFault) -> None:
        self.outcome.set_exception(error)


def with_calls(app: Callable[[Exchange], None]) -> Callable[[Exchange], None]:
    """The application with the route by which calls come in bundles."""

    def route(exchange: Exchange) -> None:
        (call_server.accept if exchange.target == call_frames.PATH else app)(exchange)

    return route


@asynccontextmanager
async def calling(
    app: Callable[[Exchange], None] = echo, answer_bytes: int = 10_000
) -> AsyncIterator[tuple[Server, Calls]]:
    """A server that takes calls in bundles, and a client."""
    async with serving(with_calls(app)) as server, asyncio.timeout(HANG_S):
        calls = Calls(server.address, answer_bytes, None)
        try:
            yield server, calls
        finally:
            calls.close()
            await asyncio.sleep(0)


async def switched(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that carries calls, of which the test writes the bytes."""
    reader, writer = await connect(server)
    writer.write(UPGRADE)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(SWITCHED)
    return reader, writer


@on_loop
async def test_the_request_shown_in_the_documentation_switches() -> None:
    """Send its lines as they are printed, and an empty one."""
    async with serving(with_calls(echo)) as server, asyncio.timeout(HANG_S):
        reader, writer = await connect(server)
        writer.write(f"{SHOWN}\n".replace("\n", "\r\n").encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(SWITCHED)
        writer.close()


def hang(exchange: Exchange) -> None:
    """Never answer."""


def send(calls: Calls, body: bytes = b"", own: bytes = b"", head: bytes = HEAD) -> Caller:
    """One call."""
    caller = Caller()
    calls.send(head, own, body, caller)
    return caller


@on_loop
async def test_calls_of_one_iteration_leave_together_and_are_answered_each_its_own() -> None:
    """The server has all of them before it answers one; answers may come in any order."""
    waiting: list[Exchange] = []

    def backwards(exchange: Exchange) -> None:
        waiting.append(exchange)
        if len(waiting) == 3:
            for held in reversed(waiting):
                held.reply(200, held.body, "text/x", [("X-Own", held.body.decode())])

    async with calling(backwards) as (server, calls):
        callers = [send(calls, body) for body in (b"a", b"b", b"")]
        outcomes = [await caller.outcome for caller in callers]
        expected = [
            (200, {b"content-type": b"text/x", b"x-own": body}, body) for body in (b"a", b"b", b"")
        ]
        assert expected == outcomes
        assert 1 == len(server.connections)


@on_loop
async def test_a_call_arrives_as_the_request_that_it_is() -> None:
    """Method, target, headers of both kinds and body; names in lower case."""
    seen: list[Exchange] = []

    def keep(exchange: Exchange) -> None:
        seen.append(exchange)
        exchange.reply(204, content_type="")

    async with calling(keep) as (_, calls):
        caller = send(
            calls, b"\n\nbody\xff", b"x-call-id: 7\nx-b:  c \n", b"PUT /a?b=%20\nX-A: \xe9\n"
        )
        assert (204, {}, b"") == await caller.outcome
    exchange = seen[0]
    assert ("PUT", "/a?b=%20", b"\n\nbody\xff") == (
        exchange.method,
        exchange.target,
        exchange.body,
    )
    expected = ((b"x-a", b"\xe9"), (b"x-call-id", b"7"), (b"x-b", b" c "))
    assert expected == exchange.headers


@on_loop
async def test_many_calls_at_once() -> None:
    """More than one message holds, in both directions, each with its own answer."""
    async with calling(answer_bytes=100_000) as (_, calls):
        bodies = [b"%d " % number * 240 for number in range(900)]
        callers = [send(calls, body) for body in bodies]
        for body, caller in zip(bodies, callers, strict=True):
            assert b"POST /a " + body == (await caller.outcome)[2]


@on_loop
async def test_a_caller_that_leaves() -> None:
    """The server is told, forgets the call and its memory; neighbours are answered."""
    left: list[bytes] = []
    held: list[Exchange] = []

    def hold(exchange: Exchange) -> None:
        held.append(exchange)
        exchange.on_gone = partial(left.append, exchange.body)

    async with calling(hold) as (server, calls):
        staying = send(calls, b"stays")
        caller = Caller()
        call_id = calls.send(HEAD, b"", b"leaves", caller)
        await wait_until_async(lambda: len(held) == 2)
        calls.cancel(call_id)
        await wait_until_async(lambda: left == [b"leaves"])
        assert [False, True] == [exchange.gone for exchange in held]
        for exchange in held:
            exchange.reply(200, exchange.body)
        assert b"stays" == (await staying.outcome)[2]
        assert 0 == server.held_bytes
        assert not caller.outcome.done()
        calls.cancel(call_id)  # once more, which is nothing
        unsent = Caller()
        calls.cancel(calls.send(HEAD, b"", b"never", unsent))
        held.clear()
        last = send(calls, b"last")
        await wait_until_async(lambda: bool(held))
        held[0].reply(200, b"answered")
        assert b"answered" == (await last.outcome)[2]
        assert [b"last"] == [exchange.body for exchange in held]


class Storm:
    """Calls that are sent, cancelled, answered and broken off by chance; it is the application."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.held: list[Exchange] = []
        self.callers: dict[bytes, tuple[int, Caller]] = {}
        self.expected: dict[bytes, bool] = {}

    def __call__(self, exchange: Exchange) -> None:
        exchange.on_gone = partial(self.held.remove, exchange)
        self.held.append(exchange)

    def send_some(self, calls: Calls) -> None:
        for _ in range(self.draw.randrange(6)):
            caller, body = Caller(), b"%x" % self.draw.getrandbits(128)
            self.callers[body] = calls.send(HEAD, b"x-own: %b\n" % body, body, caller), caller

    def cancel_some(self, calls: Calls) -> None:
        for body in [
            b for b in self.callers if b not in self.expected and self.draw.random() < 0.05
        ]:
            calls.cancel(self.callers.pop(body)[0])

    def answer_some(self, share: float) -> None:
        for exchange in [each for each in self.held if self.draw.random() < share]:
            self.held.remove(exchange)
            well = self.expected[exchange.body] = self.draw.random() < 0.8
            if well:
                exchange.reply(200, exchange.body, headers=[("x-own", exchange.body.decode())])
            else:
                exchange.abort()

    def settled(self) -> bool:
        """Whether each call has arrived, or has failed before it was sent."""
        arrived = self.expected.keys() | {exchange.body for exchange in self.held}
        return all(b in arrived or caller.outcome.done() for b, (_, caller) in self.callers.items())

    def retire_some(self, server: Server) -> None:
        for connection in tuple(server.connections):
            if self.draw.random() < 0.05:
                connection.retire()


@pytest.mark.parametrize("seed", range(scaled(40)))
def test_answers_never_cross(seed: int) -> None:
    """Whatever is answered when, broken off, cancelled, or sent on another connection meanwhile."""

    async def run() -> None:
        storm = Storm(seed)
        async with calling(storm) as (server, calls):
            for _ in range(60):
                storm.send_some(calls)
                await asyncio.sleep(0)
                storm.cancel_some(calls)
                storm.answer_some(0.1)
                storm.retire_some(server)
            await wait_until_async(storm.settled)
            storm.answer_some(1.0)
            for body, (_, caller) in storm.callers.items():
                outcome = (await asyncio.gather(caller.outcome, return_exceptions=True))[0]
                if storm.expected.get(body):
                    told = {b"content-type": b"application/json", b"x-own": body}
                    assert (200, told, body) == outcome
                else:
                    assert isinstance(outcome, ConnectionFailed)
                    assert outcome.sent is (body in storm.expected)

    asyncio.run(run())


@on_loop
async def test_a_client_that_goes_takes_all_its_calls_along() -> None:
    """Each is cancelled, and an error of one cancellation stops no other."""
    left: list[bytes] = []
    count = 0

    def hold(exchange: Exchange) -> None:
        nonlocal count
        count += 1

        def leave() -> None:
            left.append(exchange.body)
            if exchange.body == b"a":
                raise RuntimeError

        exchange.on_gone = leave

    async with calling(hold) as (_, calls):
        callers = [send(calls, b"a"), send(calls, b"b")]
        await wait_until_async(lambda: count == 2)
        calls.close()
        await wait_until_async(lambda: left == [b"a", b"b"])
        for caller in callers:
            with pytest.raises(ConnectionFailed) as failed:
                await caller.outcome
            assert (True, False) == (failed.value.sent, failed.value.stale)


@on_loop
async def test_a_call_that_is_broken_off_alone() -> None:
    """As if its connection had been closed; the others go on on theirs."""

    def app(exchange: Exchange) -> None:
        if exchange.body == b"break":
            exchange.abort()
        else:
            echo(exchange)

    async with calling(app) as (_, calls):
        first = send(calls, b"break")
        with pytest.raises(ConnectionFailed) as failed:
            await first.outcome
        assert (True, False) == (failed.value.sent, failed.value.stale)
        broken, whole = send(calls, b"break"), send(calls, b"whole")
        assert b"POST /a whole" == (await whole.outcome)[2]
        with pytest.raises(ConnectionFailed) as failed:
            await broken.outcome
        assert not failed.value.stale  # nothing had been answered before
        again = send(calls, b"break")
        with pytest.raises(ConnectionFailed) as failed:
            await again.outcome
        assert failed.value.stale


@on_loop
async def test_errors_of_the_application() -> None:
    """What it raises is that call's answer alone."""

    def app(exchange: Exchange) -> None:
        if exchange.body == b"raise":
            raise RuntimeError
        echo(exchange)

    async with calling(app) as (_, calls):
        raising, other = send(calls, b"raise"), send(calls, b"x")
        assert 500 == (await raising.outcome)[0]
        assert 200 == (await other.outcome)[0]


@on_loop
async def test_sizes_that_are_too_large() -> None:
    """A body beyond the server's limit, and an answer beyond the client's, fail alone."""
    async with calling(answer_bytes=900) as (_, calls):
        body = send(calls, b"x" * (LIMITS.body_bytes + 1))
        answer = send(calls, b"x" * 950)
        other = send(calls, b"x")
        assert 413 == (await body.outcome)[0]
        with pytest.raises(AnswerTooLarge, match="larger than 900 bytes"):
            await answer.outcome
        assert 200 == (await other.outcome)[0]


@on_loop
async def test_an_answer_that_no_message_may_hold_costs_no_other() -> None:
    """The connection stays, with the calls that are under way on it and those that follow."""
    held: list[Exchange] = []

    def app(exchange: Exchange) -> None:
        if exchange.body == b"hold":
            held.append(exchange)
        elif exchange.body == b"large":
            exchange.reply(200, bytes(2 * call_frames.SLACK_BYTES))
        else:
            echo(exchange)

    async with calling(app, answer_bytes=900) as (server, calls):
        kept = send(calls, b"hold")
        beside, large, after = (send(calls, body) for body in (b"a", b"large", b"b"))
        with pytest.raises(AnswerTooLarge, match="larger than 900 bytes"):
            await large.outcome
        assert b"POST /a a" == (await beside.outcome)[2]
        assert b"POST /a b" == (await after.outcome)[2]
        assert b"POST /a c" == (await send(calls, b"c").outcome)[2]
        held[0].reply(200, b"kept")
        assert b"kept" == (await kept.outcome)[2]
        assert (1, 0) == (len(server.connections), server.held_bytes)


@on_loop
async def test_an_answer_in_pieces_comes_whole() -> None:
    """A bundle has answers at their end; what was begun may be broken off."""

    async def pieces(exchange: Exchange) -> None:
        exchange.start(201, [("content-type", "text/x")])
        exchange.write(b"a")
        await exchange.drained()
        exchange.write(b"b")
        if exchange.body:
            exchange.abort()
        exchange.end()

    tasks: list[asyncio.Task[None]] = []

    def app(exchange: Exchange) -> None:
        tasks.append(asyncio.get_running_loop().create_task(pieces(exchange)))

    async with calling(app) as (_, calls):
        whole, broken = send(calls), send(calls, b"break")
        assert (201, {b"content-type": b"text/x"}, b"ab") == await whole.outcome
        with pytest.raises(ConnectionFailed):
            await broken.outcome
    assert all(task.done() for task in tasks)


@on_loop
async def test_an_answer_in_pieces_without_end() -> None:
    """What becomes too large to be collected is refused, and the application told to stop."""
    told: list[Exchange] = []

    def app(exchange: Exchange) -> None:
        exchange.on_gone = partial(told.append, exchange)
        exchange.start(200)
        while not exchange.gone:
            exchange.write(b"x" * 100)
        exchange.end()

    with patch.object(call_server, "_COLLECTED_BYTES", 1000):
        async with calling(app) as (server, calls):
            status, headers, body = await send(calls).outcome
            assert (502, b"application/json") == (status, headers[b"content-type"])
            assert b"accept text/event-stream" in body
            assert (1, 0) == (len(told), server.held_bytes)
            assert 502 == (await send(calls).outcome)[0]
            assert 1 == len(server.connections)


@on_loop
async def test_what_is_collected_counts_as_memory() -> None:
    """Until it is sent, or its caller has left."""
    begun: list[Exchange] = []

    def app(exchange: Exchange) -> None:
        exchange.start(200)
        exchange.write(b"x" * 5000)
        begun.append(exchange)

    async with calling(app) as (server, calls):
        whole = send(calls)
        leaving = calls.send(HEAD, b"", b"", Caller())
        await wait_until_async(lambda: len(begun) == 2)
        assert server.held_bytes > 10_000
        calls.cancel(leaving)
        await wait_until_async(lambda: server.held_bytes < 10_000)
        begun[0].end()
        assert 5000 == len((await whole.outcome)[2])
        assert 0 == server.held_bytes


@on_loop
async def test_a_call_that_there_is_no_memory_for_may_go_elsewhere() -> None:
    """It is refused with 503, and as not begun."""
    held: list[Exchange] = []
    async with serving(with_calls(held.append), Limits(held_bytes=1, body_bytes=2000)) as server:
        calls = Calls(server.address, 1000, None)
        first, second = send(calls, b"x" * 2000), send(calls, b"x" * 2000)
        status, headers, _ = await second.outcome
        assert (503, b"1", b"true") == (
            status,
            headers[b"retry-after"],
            headers[wire.NOT_BEGUN_HEADER.encode()],
        )
        held[0].reply(200, b"answered")
        assert b"answered" == (await first.outcome)[2]
        calls.close()


@on_loop
async def test_large_answers_end_no_connection_that_carries_other_calls() -> None:
    """Even with more memory in use than there should be, until nothing at all is read for long."""
    held: list[Exchange] = []
    ids = tuple(range(32))
    message = wire.encode_request(ids, [1.0] * 32, [HEAD] * 32, [b"\n"] * 32)
    async with serving(with_calls(held.append), Limits(held_bytes=1, body_bytes=500_000)) as server:
        reader, writer = await switched(server)
        for _ in range(2):
            writer.write(call_frames.frame(message))
            await wait_until_async(lambda: len(held) == len(ids))
            while held:
                held.pop().reply(200, bytes(2**20))
            assert server.held_bytes > server.most_held_bytes
            assert not server.drop_stalled()
            read: list[int] = []
            while len(read) < len(ids):
                length = int.from_bytes(await reader.readexactly(4), "little")
                read += wire.decode_answer(await reader.readexactly(length)).ids
            assert ids == tuple(sorted(read))
            assert 0 == server.held_bytes
        writer.write(call_frames.frame(message))
        await wait_until_async(lambda: len(held) == len(ids))
        while held:
            held.pop().reply(200, bytes(2**20))
        later = server.now() + 1000
        server.now = lambda: later
        assert server.drop_stalled()
        assert (1, 0) == (server.closed["unread"], server.held_bytes)
        writer.close()


class Raising:
    """A receiver with an error in whatever it is told."""

    def answered(self, *_: object) -> None:
        raise RuntimeError

    failed = answered


@on_loop
async def test_an_error_of_one_receiver_is_its_own() -> None:
    """The others are told: answers, the end of the connection, and that there is none."""
    async with calling() as (server, calls):
        calls.send(HEAD, b"", b"a", Raising())
        assert b"POST /a b" == (await send(calls, b"b").outcome)[2]
        assert 1 == len(server.connections)
    async with calling(hang) as (server, calls):
        calls.send(HEAD, b"", b"a", Raising())
        other = send(calls, b"b")
        await wait_until_async(lambda: server.held_bytes > 2048)
        calls.close()
        with pytest.raises(ConnectionFailed):
            await other.outcome
    calls = Calls(server.address, 1000, None)
    calls.send(HEAD, b"", b"a", Raising())
    with pytest.raises(ConnectionFailed, match="cannot connect"):
        await send(calls).outcome


@on_loop
async def test_a_server_that_retires_answers_and_gets_no_further_calls_on_that_connection() -> None:
    """What it has is answered there; the next call opens another connection, as long as one may."""
    held: list[Exchange] = []
    async with calling(held.append) as (server, calls):
        first = send(calls, b"first")
        await wait_until_async(lambda: len(held) == 1)
        (connection,) = server.connections
        connection.retire()
        connection.retire()
        await wait_until_async(lambda: calls._connection is None)
        second = send(calls, b"second")
        await wait_until_async(lambda: len(held) == 2)
        assert 2 == len(server.connections)
        for exchange in held:
            exchange.reply(200, exchange.body)
        assert (b"first", b"second") == ((await first.outcome)[2], (await second.outcome)[2])
        await wait_until_async(lambda: connection not in server.connections)


@on_loop
async def test_a_server_that_closes_loses_no_call() -> None:
    """The client closes the connection when all is answered, and the drain is over with that."""
    held: list[Exchange] = []
    async with calling(held.append) as (server, calls):
        caller = send(calls, b"x")
        await wait_until_async(lambda: len(held) == 1)
        server.retire()
        server.close()
        draining = asyncio.create_task(server.drain(HANG_S))
        held[0].reply(200, b"answered")
        assert b"answered" == (await caller.outcome)[2]
        assert await draining
        late = send(calls)
        with pytest.raises(ConnectionFailed) as failed:
            await late.outcome
        assert not failed.value.sent


@on_loop
async def test_a_connection_without_calls() -> None:
    """It is told to go when it has been idle for long, and closed if it does not."""
    async with calling() as (server, calls):
        await send(calls).outcome
        (connection,) = server.connections
        assert connection.idle(server.now())
        connection.expire(server.now() + LIMITS.idle_s + 1)
        await wait_until_async(lambda: not server.connections)
        reader, writer = await switched(server)
        (connection,) = server.connections
        connection.expire(server.now() + LIMITS.idle_s + 1)
        connection.expire(server.now() + 3)
        assert call_frames.frame(call_frames.ENDED) == await reader.read()
        writer.close()


@on_loop
async def test_a_peer_without_bundles() -> None:
    """It is remembered only of one that will not have them later either."""

    def app(exchange: Exchange) -> None:
        exchange.reply(404 if exchange.target == call_frames.PATH else 200)

    async with serving(app) as server:
        calls = Calls(server.address, 1000, None)
        with pytest.raises(ConnectionFailed, match="status 404") as failed:
            await send(calls).outcome
        assert (False, True) == (failed.value.sent, calls.refused)
    calls = Calls(server.address, 1000, None)
    with pytest.raises(ConnectionFailed, match="cannot connect") as failed:
        await send(calls).outcome
    assert (False, False) == (failed.value.sent, calls.refused)


@on_loop
async def test_what_is_no_request_for_bundles() -> None:
    """Without the header, among other requests, or as a call itself, it is refused."""
    async with calling() as (server, calls):
        answer = await spoken(server, b"GET /_/calls HTTP/1.1\r\n" + CLOSE)
        assert answer.startswith(b"HTTP/1.1 426 ")
        assert b"upgrade: carpool-calls\r\n" in answer
        unmeant = await spoken(
            server, UPGRADE.replace(b"connection: upgrade\r\n", b"")[:-2] + CLOSE
        )
        assert unmeant.startswith(b"HTTP/1.1 426 ")
        inside = send(calls, head=b"GET /_/calls\nupgrade: carpool-calls\nconnection: upgrade\n")
        assert 400 == (await inside.outcome)[0]
    waiting: list[Exchange] = []
    async with serving(with_calls(waiting.append)) as server:
        reader, writer = await connect(server)
        writer.write(b"GET / HTTP/1.1\r\n\r\n" + UPGRADE)
        await wait_until_async(lambda: bool(waiting))
        waiting[0].reply(200)
        await reader.readuntil(b"\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(
            (b"HTTP/1.1 101 ", b"HTTP/1.1 400 ")
        )
        writer.close()
        await wait_until_async(lambda: not server.connections)


BAD = {
    "no message": b"XXXX",
    "columns that end": b"CPQ1\x01\x00\x00\x00",
    "an id twice": wire.encode_request([1, 1], [1.0, 1.0], [HEAD, HEAD], [b"\n", b"\n"]),
    "half an id": b"CPC1\x00\x00",
}


BAD_CALLS = {
    "a head that is none": (b"POST\n", b"\n"),
    "a head with a control character": (b"POST /\x01\n", b"\n"),
    "a header that forges": (HEAD + b"a\rb: c\n", b"\n"),
    "no empty line": (HEAD, b"a: b\n"),
    "own lines that are none": (HEAD, b"a\n\n"),
}


@pytest.mark.parametrize(("head", "content"), BAD_CALLS.values(), ids=BAD_CALLS)
def test_a_call_that_cannot_be_read_fails_alone(head: bytes, content: bytes) -> None:
    """It is answered 400, and the others as usual."""

    async def run() -> None:
        async with calling() as (server, _):
            reader, writer = await switched(server)
            message = wire.encode_request([1, 2], [1.0, 1.0], [head, HEAD], [content, b"\nx"])
            writer.write(call_frames.frame(message))
            length = int.from_bytes(await reader.readexactly(4), "little")
            columns = wire.decode_answer(await reader.readexactly(length))
            assert ((1, 2), (400, 200)) == (columns.ids, columns.statuses)
            writer.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "place", [b"GET /x%by HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\na: x%by\r\n\r\n"]
)
def test_what_the_edge_lets_in_can_travel_with_others(place: bytes) -> None:
    """Whatever byte a target or header has, there is no request that only one edge understands."""
    read: list[Exchange] = []
    sent = [place % bytes([byte]) for byte in range(256) if byte not in b"\r\n"]

    async def run() -> None:
        def keep(exchange: Exchange) -> None:
            read.append(exchange)
            exchange.keep_alive = False
            exchange.reply(200)

        async with serving(keep) as server:
            for request in sent:
                await spoken(server, request)

    asyncio.run(run())
    assert len(read) > 90
    for exchange in read:
        lines = b"".join(b"%b: %b\n" % pair for pair in exchange.headers)
        head = f"{exchange.method} {exchange.target}\n".encode("latin-1") + lines
        again = call_frames.call_head(head)
        assert (exchange.target, exchange.headers) == (again.target, again.headers)


@pytest.mark.parametrize("message", BAD.values(), ids=BAD)
def test_what_cannot_be_read_ends_the_connection_alone(message: bytes) -> None:
    """A client that speaks so is disconnected; the memory is given back, others are served."""

    async def run() -> None:
        async with calling(hang) as (server, _):
            reader, writer = await switched(server)
            writer.write(call_frames.frame(message))
            with contextlib.suppress(ConnectionResetError):
                assert b"" == await reader.read()
            writer.close()
            await wait_until_async(lambda: not server.connections)
        async with calling() as (_, calls):
            assert 200 == (await send(calls).outcome)[0]

    asyncio.run(run())


@on_loop
async def test_messages_that_are_too_large_or_never_end() -> None:
    """The first ends the connection at once, the second when its time is over; nothing is kept."""
    async with calling() as (server, _):
        reader, writer = await switched(server)
        writer.write((call_frames.SLACK_BYTES + 1).to_bytes(4, "little"))
        with contextlib.suppress(ConnectionResetError):
            assert b"" == await reader.read()
        writer.close()
        reader, writer = await switched(server)
        writer.write((1000).to_bytes(4, "little") + b"x" * 500)
        await wait_until_async(lambda: server.held_bytes == 504)
        (connection,) = server.connections
        connection.expire(server.now() + LIMITS.read_s + 1)
        with contextlib.suppress(ConnectionResetError):
            assert b"" == await reader.read()
        writer.close()


@on_loop
async def test_what_follows_the_request_before_it_is_agreed_to_is_dropped() -> None:
    """Its memory is given back, and the connection carries calls."""
    async with calling() as (server, _):
        reader, writer = await connect(server)
        writer.write(UPGRADE + b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\nabc")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(SWITCHED)
        await wait_until_async(lambda: server.held_bytes == 0)
        message = wire.encode_request([5], [1.0], [HEAD], [b"\nx"])
        writer.write(call_frames.frame(message))
        length = int.from_bytes(await reader.readexactly(4), "little")
        columns = wire.decode_answer(await reader.readexactly(length))
        assert ((5,), (200,)) == (columns.ids, columns.statuses)
        writer.close()


MESSAGES = st.one_of(
    st.binary(max_size=60),
    st.builds(
        lambda ids, head, content: wire.encode_request(
            ids, [1.0] * len(ids), [head] * len(ids), [content] * len(ids)
        ),
        st.lists(st.integers(0, 3), max_size=4),
        st.one_of(st.just(HEAD), st.binary(max_size=20)),
        st.one_of(st.just(b"\nbody"), st.binary(max_size=20)),
    ),
    st.builds(call_frames.cancelled, st.lists(st.integers(0, 3), max_size=4)),
)


@given(st.lists(MESSAGES, max_size=6), st.binary(max_size=10))
def test_whatever_is_sent_there_is_an_end_to_it(messages: list[bytes], rest: bytes) -> None:
    """The server fails at nothing, and gives all memory back when the client has gone."""

    async def run() -> None:
        async with serving(with_calls(echo)) as server, asyncio.timeout(HANG_S):
            reader, writer = await switched(server)
            writer.write(b"".join(map(call_frames.frame, messages)) + rest)
            writer.write_eof()
            with contextlib.suppress(ConnectionResetError):
                await reader.read()
            writer.close()
            await wait_until_async(lambda: not server.connections)

    asyncio.run(run())


@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(0, 200), max_size=8))
def test_frames_are_the_same_however_they_are_cut(messages: list[bytes], cuts: list[int]) -> None:
    """Each message comes whole and once, and nothing is left over."""
    data = b"".join(map(call_frames.frame, messages))
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    reader = call_frames.FrameReader(40)
    read: list[bytes] = []
    for start, end in pairwise(places):
        read += [bytes(message) for message in reader.feed(data[start:end])]
    assert messages == read
    assert 0 == reader.partial_bytes


@given(st.lists(st.integers(0, 200), max_size=8))
def test_a_large_answer_is_dropped_however_it_is_cut(cuts: list[int]) -> None:
    """What comes before and after it is read, and nothing of it is kept."""
    large = wire.encode_answer([7], [200], [b"\n"], [b"x" * 20])
    data = b"".join(map(call_frames.frame, (b"before", large, large, b"after")))
    dropped: list[int] = []
    reader, read = call_frames.FrameReader(40), list[bytes]()

    def drop(beginning: memoryview) -> None:
        dropped.append(call_frames.only_answer(beginning))

    for start, end in pairwise(sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})):
        read += [bytes(message) for message in reader.feed(data[start:end], drop)]
    assert ([7, 7], 0) == (dropped, reader.partial_bytes)
    assert [b"before", b"after"] == read


def test_a_frame_beyond_the_limit_is_no_frame() -> None:
    """It is refused by its length alone."""
    with pytest.raises(WireError, match="a message of 41 bytes: expected at most 40"):
        call_frames.FrameReader(40).feed((41).to_bytes(4, "little"))
