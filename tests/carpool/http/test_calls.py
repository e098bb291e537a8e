"""Bundled calls over one kept connection: both ends over real sockets, and bytes in pieces."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
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
    from carpool.http.exchange import KnownHead
    from carpool.http.server import Exchange, Server

HEAD = b"POST /a HTTP\ncontent-type: text/plain\n".replace(b" HTTP", b"")
OFFER = b"connection: upgrade\r\nupgrade: carpool-calls\r\n\r\n"
UPGRADE = b"GET /_/calls HTTP/1.1\r\nhost: x\r\n" + OFFER
SWITCHED = b"HTTP/1.1 101 "
SHOWN = take_one("docs/wire.md", "^GET /_/calls")


class Caller:
    """Receiver of a call's result, which it stores in `outcome`."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[tuple[int, dict[bytes, bytes], bytes]] = (
            asyncio.get_running_loop().create_future()
        )

    def answered(self, status: int, head: bytes, body: memoryview) -> None:
        self.outcome.set_result((status, dict(call_frames.answer_lines(head)), bytes(body)))

    def failed(self, error: FunctionFault) -> None:
        self.outcome.set_exception(error)


def with_calls(app: Callable[[Exchange], None]) -> Callable[[Exchange], None]:
    """Return the application with the route for bundled calls added."""

    def route(exchange: Exchange) -> None:
        (call_server.accept if exchange.target == call_frames.PATH else app)(exchange)

    return route


@asynccontextmanager
async def calling(
    app: Callable[[Exchange], None] = echo, answer_bytes: int = 10_000
) -> AsyncIterator[tuple[Server, Calls]]:
    """Run a server that accepts bundled calls, with a client."""
    async with serving(with_calls(app)) as server, asyncio.timeout(HANG_S):
        calls = Calls(server.address, answer_bytes, None)
        try:
            yield server, calls
        finally:
            calls.close()
            await asyncio.sleep(0)


async def switched(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection for bundled calls whose bytes are written by the test."""
    reader, writer = await connect(server)
    writer.write(UPGRADE)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(SWITCHED)
    return reader, writer


@on_loop
async def test_documented_upgrade_request_switches_protocols() -> None:
    """The documented request, sent as printed with an empty line after it, switches protocols."""
    async with serving(with_calls(echo)) as server, asyncio.timeout(HANG_S):
        reader, writer = await connect(server)
        writer.write(f"{SHOWN}\n".replace("\n", "\r\n").encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(SWITCHED)
        writer.close()


def hang(exchange: Exchange) -> None:
    """Never answer."""


def send(calls: Calls, body: bytes = b"", own: bytes = b"", head: bytes = HEAD) -> Caller:
    """Send one call."""
    caller = Caller()
    calls.send(head, own, body, caller)
    return caller


@on_loop
async def test_calls_of_one_iteration_are_bundled_and_answered_in_any_order() -> None:
    """The server receives all calls before it answers one, and may answer them in any order."""
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
async def test_call_carries_method_target_headers_and_body() -> None:
    """The method, target, headers of both kinds and body arrive; header names are in lower case."""
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
async def test_usual_headers_of_calls_are_told_from_those_that_repeat() -> None:
    """Calls with one head share it if each has only the headers that any provider adds."""
    seen: list[Exchange] = []

    def keep(exchange: Exchange) -> None:
        seen.append(exchange)
        exchange.reply(204)

    usual = b"x-call-id: %d\nx-forwarded-for: 10.0.0.1, 10.0.0.2\nx-start-time: 3\n"
    others = (b"", usual % 2 + b"x-timeout: 1s\n", b"x-call-id: 1\n")
    async with calling(keep) as (_, calls):
        for own in (usual % 1, usual % 2, *others):
            await send(calls, b"\n\n", own).outcome
    head = seen[0].known_head
    assert head is not None
    assert [head, head, head, None, None] == [each.known_head for each in seen]
    assert [3, 3, 0, 0, 0] == [len(each.own_headers) for each in seen]
    assert (*head.headers, *seen[1].own_headers) == seen[1].headers
    assert [4, 4, 1, 5, 2] == [len(each.headers) for each in seen]
    assert {b"\n\n"} == {each.body for each in seen}


@on_loop
async def test_full_bundle_is_sent_at_once() -> None:
    """A full bundle does not wait until the end of the iteration, nor do responses as many."""
    waiting: list[Exchange] = []
    unsent: list[int] = []

    def together(exchange: Exchange) -> None:
        waiting.append(exchange)
        if len(waiting) == 100:
            for held in waiting:
                held.reply(200)
            unsent.extend(len(each._answers) for each in connections())

    async with calling(together) as (server, calls):

        def connections() -> list[call_server.ServedCalls]:
            return [c for c in server.connections if isinstance(c, call_server.ServedCalls)]

        callers = [send(calls) for _ in range(3)]
        await wait_until_async(lambda: len(waiting) == len(callers))
        callers += [send(calls) for _ in range(97)]
        assert 97 - call_frames.BUNDLE_CALLS == len(calls._unsent)
        assert {200} == {(await caller.outcome)[0] for caller in callers}
    assert [100 - call_frames.BUNDLE_CALLS] == unsent


@on_loop
async def test_many_calls_at_once() -> None:
    """Calls and responses that exceed one message are each matched to their own."""
    async with calling(answer_bytes=100_000) as (_, calls):
        bodies = [b"%d " % number * 240 for number in range(900)]
        callers = [send(calls, body) for body in bodies]
        for body, caller in zip(bodies, callers, strict=True):
            assert b"POST /a " + body == (await caller.outcome)[2]


@on_loop
async def test_cancelled_call_is_released_at_the_server() -> None:
    """The server learns of a cancelled call and releases its memory; other calls are answered."""
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


@on_loop
async def test_callers_that_leave_while_connecting_cause_no_error() -> None:
    """A connection whose callers have all left before it was opened is used by the next call."""
    failed: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
    async with calling() as (server, calls):
        call_id = calls.send(HEAD, b"", b"", Caller())
        await asyncio.sleep(0)  # the connection is being opened
        calls.cancel(call_id)
        await wait_until_async(lambda: calls._connection is not None, what="the connection")
        assert 200 == (await send(calls).outcome)[0]
        assert 1 == len(server.connections)
    gc.collect()  # a task that has failed says so when it is collected
    assert [] == failed


class Storm:
    """An application whose calls are sent, cancelled, answered and aborted at random."""

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
        """Return whether each call has arrived, or has failed before it was sent."""
        arrived = self.expected.keys() | {exchange.body for exchange in self.held}
        return all(b in arrived or caller.outcome.done() for b, (_, caller) in self.callers.items())

    def retire_some(self, server: Server) -> None:
        for connection in tuple(server.connections):
            if self.draw.random() < 0.05:
                connection.retire()


@pytest.mark.parametrize("seed", range(scaled(40)))
def test_responses_never_cross(seed: int) -> None:
    """Each call gets its own response while others are aborted, cancelled or sent elsewhere."""

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
async def test_client_disconnect_cancels_all_its_calls() -> None:
    """All calls of a client that disconnects are cancelled, even if one cancellation raises."""
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
async def test_aborted_call_fails_alone() -> None:
    """An aborted call fails as if its connection had been closed; the others continue."""

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
async def test_application_error_fails_only_its_call() -> None:
    """An exception in the application fails only the call that raised it."""

    def app(exchange: Exchange) -> None:
        if exchange.body == b"raise":
            raise RuntimeError
        echo(exchange)

    async with calling(app) as (_, calls):
        raising, other = send(calls, b"raise"), send(calls, b"x")
        assert 500 == (await raising.outcome)[0]
        assert 200 == (await other.outcome)[0]


@on_loop
async def test_oversized_body_or_response_fails_only_its_call() -> None:
    """A body beyond the server's limit, or a response beyond the client's, fails only its call."""
    async with calling(answer_bytes=900) as (_, calls):
        body = send(calls, b"x" * (LIMITS.body_bytes + 1))
        answer = send(calls, b"x" * 950)
        other = send(calls, b"x")
        assert 413 == (await body.outcome)[0]
        with pytest.raises(AnswerTooLarge, match="larger than 900 bytes"):
            await answer.outcome
        assert 200 == (await other.outcome)[0]


@on_loop
async def test_oversized_response_keeps_connection_and_other_calls() -> None:
    """An oversized response leaves the connection open, with its current and later calls."""
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
async def test_response_in_pieces_is_sent_when_complete() -> None:
    """A response written in pieces is sent when it is complete, and may be aborted before that."""

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
async def test_endless_response_is_refused() -> None:
    """A response too large to collect is refused, and the application is told to stop."""
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
async def test_collected_response_is_refused_if_memory_is_short() -> None:
    """Pieces beyond the memory limit are answered with 503, and the application is told to stop."""
    told: list[Exchange] = []

    def app(exchange: Exchange) -> None:
        exchange.on_gone = partial(told.append, exchange)
        exchange.start(200)
        while not exchange.gone:
            exchange.write(b"x" * 1000)

    limits = Limits(held_bytes=20_000, body_bytes=1000)
    async with serving(with_calls(app), limits) as server, asyncio.timeout(HANG_S):
        calls = Calls(server.address, 10_000, None)
        status, headers, body = await send(calls).outcome
        assert (503, b"1") == (status, headers[b"retry-after"])
        assert wire.NOT_BEGUN_HEADER.encode() not in headers
        assert b"too much memory" in body
        assert (1, 0) == (len(told), server.held_bytes)
        calls.close()


@on_loop
async def test_collected_response_pieces_count_as_memory() -> None:
    """Collected pieces count as memory until they are sent or their caller has left."""
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
async def test_call_without_memory_gets_503_and_is_marked_not_begun() -> None:
    """A call without memory for it is refused with 503 and marked as not begun."""
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
async def test_large_responses_close_only_stalled_connections() -> None:
    """A connection above the memory limit is closed only if nothing is read for a long time."""
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
    """A receiver that raises whatever it is given."""

    def answered(self, *_: object) -> None:
        raise RuntimeError

    failed = answered


@on_loop
async def test_error_in_one_receiver_does_not_affect_others() -> None:
    """Other receivers still get their responses, the end of a connection, and failed connects."""
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
async def test_retiring_connection_answers_its_calls_and_gets_no_more() -> None:
    """Calls in flight are answered on the retiring connection; the next call opens a new one."""
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
async def test_closing_server_loses_no_call() -> None:
    """The client closes the connection once all calls are answered, which completes the drain."""
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


class Overloaded:
    """An application's overload that the test switches on and off."""

    late_after_ms = 50

    def __init__(self) -> None:
        self.is_full = False
        self.refused = 0

    def full(self) -> bool:
        return self.is_full

    def refused_before(self, count: int) -> None:
        self.refused += count


@on_loop
async def test_marked_answers_limit_the_open_calls_and_refusals_are_reported() -> None:
    """After a marked answer half as many calls may be open; the server counts those refused."""
    held: list[Exchange] = []
    async with calling(held.append) as (server, calls):
        overload = server.overload = Overloaded()
        callers = [send(calls) for _ in range(100)]
        await wait_until_async(lambda: len(held) == 100)
        assert (False, math.inf) == (calls.full, calls.hold_max_s)
        overload.is_full = True
        held[0].reply(200)
        await callers[0].outcome
        assert (True, 0.05) == (calls.full, calls.hold_max_s)
        overload.is_full = False
        calls.count_refused(2)
        for exchange in held[1:60]:
            exchange.reply(200)
        await callers[59].outcome
        assert not calls.full
        await wait_until_async(lambda: overload.refused == 2)
        for number in range(40, 60):  # as many as are open make it full, sent or not
            callers.append(send(calls))
            assert (number > 49) is calls.full, number


@on_loop
async def test_idle_connection_is_closed() -> None:
    """A connection idle for too long is asked to close, and is closed if it does not."""
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
async def test_only_permanent_refusal_of_bundles_is_remembered() -> None:
    """Only a peer that will never accept bundled calls is remembered as refusing them."""

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
async def test_invalid_upgrade_to_bundles_is_refused() -> None:
    """An upgrade without its header, among other requests, or sent as a call is refused."""
    async with calling() as (server, calls):
        answer = await spoken(server, b"GET /_/calls HTTP/1.1\r\nhost: x\r\n" + CLOSE)
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
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" + UPGRADE)
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
    "half a number": b"CPR1\x00\x00",
}


BAD_CALLS = {
    "a head that is none": (400, b"POST\n", b"\n"),
    "a head with a control character": (400, b"POST /\x01\n", b"\n"),
    "a header that forges": (400, HEAD + b"a\rb: c\n", b"\n"),
    "no empty line": (400, HEAD, b"a: b\n"),
    "own lines that are none": (400, HEAD, b"a\n\n"),
    "a large head": (431, HEAD + b"a: %b\n" % bytes(LIMITS.head_bytes), b"\n"),
    "many headers": (431, HEAD + b"a: \n" * LIMITS.headers, b"\n"),
    "many headers of its own": (431, HEAD, b"a: \n" * LIMITS.headers + b"\n"),
    "a large header of its own": (431, HEAD, b"a: %b\n\n" % (b"x" * LIMITS.head_bytes)),
}


@pytest.mark.parametrize(("status", "head", "content"), BAD_CALLS.values(), ids=BAD_CALLS)
def test_bad_call_fails_alone(status: int, head: bytes, content: bytes) -> None:
    """A malformed call, or one with more or larger headers than a request may have."""

    async def run() -> None:
        async with calling() as (server, _):
            reader, writer = await switched(server)
            message = wire.encode_request([1, 2], [1.0, 1.0], [head, HEAD], [content, b"\nx"])
            writer.write(call_frames.frame(message))
            length = int.from_bytes(await reader.readexactly(4), "little")
            columns = wire.decode_answer(await reader.readexactly(length))
            assert ((1, 2), (status, 200)) == (columns.ids, columns.statuses)
            writer.close()

    asyncio.run(run())


@on_loop
async def test_head_of_many_calls_is_read_once() -> None:
    """A message of a megabyte is not read thousands of times, be its heads valid or not."""
    read: list[bytes] = []

    def counted(head: bytes) -> KnownHead:
        read.append(head)
        return call_frames.call_head(head)

    heads = [HEAD + b"a: %b\n" % (b"x" * 1900), HEAD + b"a\n"] * 100
    with patch.object(call_server, "SmallCache", lambda _: counted):
        async with calling() as (server, _):
            reader, writer = await switched(server)
            message = wire.encode_request([*range(200)], [1.0] * 200, heads, [b"\n"] * 200)
            writer.write(call_frames.frame(message))
            answers = await reader.readexactly(4)
            answers = await reader.readexactly(int.from_bytes(answers, "little"))
            assert {200, 400} == {*wire.decode_answer(answers).statuses}
            writer.close()
    assert {*heads[:2]} == {*read}
    assert 2 == len(read)


@pytest.mark.parametrize(
    "place",
    [b"GET /x%by HTTP/1.1\r\nhost: x\r\n\r\n", b"GET / HTTP/1.1\r\nhost: x%by\r\n\r\n"],
)
def test_requests_accepted_at_the_edge_are_valid_as_calls(place: bytes) -> None:
    """A request with any byte in its target or headers is read alike at the edge and in a call."""
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
def test_malformed_message_closes_only_its_connection(message: bytes) -> None:
    """A client that sends a malformed message is disconnected, and other clients are served."""

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
    """An oversized message closes the connection at once, an unfinished one after the timeout."""
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
async def test_bytes_sent_before_the_switch_are_dropped() -> None:
    """Bytes sent before the switch are dropped and their memory released; calls then work."""
    async with calling() as (server, _):
        reader, writer = await connect(server)
        writer.write(UPGRADE + b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nabc")
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
def test_server_survives_any_input_and_releases_memory(messages: list[bytes], rest: bytes) -> None:
    """The server survives any input, and releases all memory when the client has disconnected."""

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
def test_frames_are_independent_of_how_stream_is_split(
    messages: list[bytes], cuts: list[int]
) -> None:
    """Each message arrives whole and once, and no bytes are left over."""
    data = b"".join(map(call_frames.frame, messages))
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    reader = call_frames.FrameReader(40)
    read: list[bytes] = []
    for start, end in pairwise(places):
        read += [bytes(message) for message in reader.feed(data[start:end])]
    assert messages == read
    assert 0 == reader.partial_bytes


@given(st.lists(st.integers(0, 200), max_size=8))
def test_oversized_response_is_dropped_however_stream_is_split(cuts: list[int]) -> None:
    """The messages before and after a dropped response are read, and none of its bytes is kept."""
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


def test_oversized_frame_is_refused_by_its_length() -> None:
    """A frame beyond the limit is refused as soon as its length is read."""
    with pytest.raises(WireError, match="a message of 41 bytes: expected at most 40"):
        call_frames.FrameReader(40).feed((41).to_bytes(4, "little"))
