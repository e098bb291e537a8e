"""The HTTP edge over real sockets: requests, ordered responses, errors and shutdown."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from carpool.errors import Overloaded, QueueFull
from carpool.http import server as server_module
from tests.carpool.http.edge import CLOSE, LIMITS, Socketless, connect, once, serving, spoken
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from carpool.http.server import Exchange


def test_a_request_is_answered() -> None:
    """A response has its status line and body, and closes the connection if asked to."""
    answer = once(b"GET /a?b=c HTTP/1.1\r\nhost: x\r\n" + CLOSE)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nGET /a?b=c ")
    assert b"connection: close\r\n" in answer


def test_body_may_arrive_in_any_pieces() -> None:
    """A request that arrives byte by byte gets the same response."""
    raw = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n" + CLOSE + b"abc"
    assert once(*[raw[i : i + 1] for i in range(len(raw))]).endswith(b"POST / abc")


def test_a_chunked_body_is_decoded() -> None:
    """Chunk framing, extensions and trailers are removed from the body."""
    raw = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n" + CLOSE
    assert once(raw + b"3;x=1\r\nabc\r\n2\r\nde\r\n0\r\nt: 1\r\n\r\n").endswith(b"POST / abcde")


def test_pipelined_requests_are_answered_in_order() -> None:
    """Responses that the application gives in reverse order are sent in request order."""
    waiting: list[Exchange] = []

    def backwards(exchange: Exchange) -> None:
        waiting.append(exchange)
        if len(waiting) == 3:
            for held in reversed(waiting):
                held.reply(200, held.target.encode())

    head = b"GET /%d HTTP/1.1\r\nhost: x\r\n"
    raw = head % 1 + b"\r\n" + head % 2 + b"\r\n" + head % 3 + CLOSE
    answer = once(raw, app=backwards)
    assert answer.index(b"/1") < answer.index(b"/2") < answer.index(b"/3")


@pytest.mark.parametrize("status", [204, 304])
def test_streamed_response_without_body_has_no_chunks(status: int) -> None:
    """No chunk is sent, as even the last one would be taken for the start of the next response."""

    def stream(exchange: Exchange) -> None:
        exchange.start(status, [("x-a", "b")])
        exchange.write(b"ab")
        exchange.end()

    answer = once(b"GET / HTTP/1.1\r\nhost: x\r\n" + CLOSE, app=stream)
    assert b"transfer-encoding" not in answer
    assert answer.endswith(b"\r\n\r\n")
    assert b"" == answer.partition(b"\r\n\r\n")[2]


def test_streamed_response_is_chunked() -> None:
    """Each part of a streamed response is sent as one chunk."""

    def stream(exchange: Exchange) -> None:
        exchange.start(200, [("content-type", "text/plain")])
        exchange.write(b"ab")
        exchange.write(b"")
        exchange.write(b"c")
        exchange.end()

    answer = once(b"GET / HTTP/1.1\r\nhost: x\r\n" + CLOSE, app=stream)
    assert answer.endswith(b"\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")


def test_response_to_head_has_no_body() -> None:
    """The response to HEAD has the length but no body."""
    answer = once(b"HEAD / HTTP/1.1\r\nhost: x\r\n" + CLOSE)
    assert b"content-length: 7\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


def test_expect_100_continue_is_answered() -> None:
    """A client gets one 100 Continue, unless it has sent its body already."""
    lines = b"host: x\r\nexpect: 100-continue\r\ncontent-length: 1\r\n"
    head = b"POST / HTTP/1.1\r\n" + lines + CLOSE

    async def run() -> tuple[bytes, bytes]:
        async with serving() as server, asyncio.timeout(HANG_S):
            reader, writer = await connect(server)
            writer.write(head)
            interim = await reader.readuntil(b"\r\n\r\n")
            writer.write(b"x")
            final = await reader.read()
            writer.close()
            return interim, final

    interim, final = asyncio.run(run())
    assert b"HTTP/1.1 100 Continue\r\n\r\n" == interim
    assert final.startswith(b"HTTP/1.1 200 OK")
    assert once(head + b"x").startswith(b"HTTP/1.1 200 OK")


def test_expectation_behind_pending_request_is_answered_after_it() -> None:
    """100 Continue follows the responses to earlier requests, and is sent once."""
    waiting: list[Exchange] = []
    first = b"GET /1 HTTP/1.1\r\nhost: x\r\n\r\n"
    head = b"POST /2 HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n"

    async def run() -> None:
        async with serving(waiting.append) as server:
            client = Socketless(server)
            client.feed(first, head)
            client.later(2 * LIMITS.read_s)
            assert b"" == client.sent
            waiting.pop().reply(200, b"one")
            assert client.sent.endswith(b"oneHTTP/1.1 100 Continue\r\n\r\n")
            client.feed(b"x", b"y")
            assert b"xy" == waiting[0].body
            waiting.pop().reply(200, b"two")
            assert client.sent.endswith(b"two")
            assert 1 == client.sent.count(b"100 Continue")
            client.hang_up()

    asyncio.run(run())


@pytest.mark.parametrize("framing", [b"content-length: 3\r\n", b"transfer-encoding: chunked\r\n"])
def test_h2c_upgrade_is_ignored(framing: bytes) -> None:
    """The h2c upgrade that Java's client offers by default is ignored, and the body is read."""
    body = b"abc" if b"length" in framing else b"3\r\nabc\r\n0\r\n\r\n"
    offer = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"
    first = b"POST /1 HTTP/1.1\r\nhost: x\r\n" + offer + framing + b"\r\n" + body
    bare = b"GET /2 HTTP/1.1\r\nhost: x\r\n" + offer + b"\r\n"
    answer = once(first + first + bare + b"GET /3 HTTP/1.1\r\nhost: x\r\n" + CLOSE)
    assert 4 == answer.count(b"HTTP/1.1 200 OK")
    assert 2 == answer.count(b"POST /1 abc")
    assert answer.index(b"GET /2 ") < answer.index(b"GET /3 ")


def test_http_1_0_client_gets_no_chunks() -> None:
    """Every response to an HTTP/1.0 client ends with the connection, including streamed ones."""

    def stream(exchange: Exchange) -> None:
        exchange.start(200)
        exchange.write(b"ab")
        exchange.write(b"c")
        exchange.end()

    raw = b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n"
    answer = once(raw, app=stream)
    assert answer.endswith(b"connection: close\r\n\r\nabc")
    assert b"transfer-encoding" not in answer
    assert once(raw).endswith(b"connection: close\r\n\r\nGET / ")


def test_application_is_notified_of_disconnect_once() -> None:
    """The application is notified once when a client leaves, and a late response is dropped."""

    async def run() -> list[str]:
        seen: list[str] = []
        arrived, gone = asyncio.Event(), asyncio.Event()

        def app(exchange: Exchange) -> None:
            def left() -> None:
                seen.append("gone")
                exchange.reply(200, b"too late")
                gone.set()

            exchange.on_gone = left
            arrived.set()

        async with serving(app) as server, asyncio.timeout(HANG_S):
            _, writer = await connect(server)
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            await arrived.wait()
            writer.close()
            await gone.wait()
        return seen

    assert ["gone"] == asyncio.run(run())


def test_application_errors_become_responses() -> None:
    """A Carpool error has its own status and Retry-After; any other exception is a plain 500."""

    def app(exchange: Exchange) -> None:
        if exchange.target == "/full":
            msg = "no room"
            raise QueueFull(msg, retry_after_s=2.2)
        if exchange.target == "/busy":
            msg = "busy"
            raise Overloaded(msg)
        raise ZeroDivisionError

    def ask(target: bytes) -> bytes:
        return once(b"GET %b HTTP/1.1\r\nhost: x\r\n" % target + CLOSE, app=app)

    full = ask(b"/full")
    assert full.startswith(b"HTTP/1.1 429 ")
    assert b"retry-after: 3\r\n" in full
    assert full.endswith(b'{"error": "no room"}')
    assert ask(b"/busy").startswith(b"HTTP/1.1 503 ")
    broken = ask(b"/x")
    assert broken.startswith(b"HTTP/1.1 500 ")
    assert b"ZeroDivision" not in broken


def test_closing_server_finishes_its_exchanges() -> None:
    """A closing server finishes its exchanges, and the last response announces the close."""

    async def run() -> tuple[bool, bool, bytes]:
        waiting: list[Exchange] = []
        arrived = asyncio.Event()

        def app(exchange: Exchange) -> None:
            waiting.append(exchange)
            arrived.set()

        async with serving(app) as server, asyncio.timeout(HANG_S):
            reader, writer = await connect(server)
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            await arrived.wait()
            server.close()
            early = await server.drain(0.05)
            waiting[0].reply(200, b"done")
            late = await server.drain(5.0)
            answer = await reader.read()
            writer.close()
            return early, late, answer

    early, late, answer = asyncio.run(run())
    assert (False, True) == (early, late)
    assert b"connection: close\r\n" in answer
    assert answer.endswith(b"done")


@pytest.mark.parametrize("read", [True, False])
def test_closing_server_answers_partially_received_request(read: bool) -> None:  # noqa: FBT001
    """A request that has begun to arrive is answered, even if none of it was read yet."""

    async def run() -> tuple[bool, bool, bytes]:
        async with serving() as server, asyncio.timeout(HANG_S):
            reader, writer = await connect(server)
            await wait_until_async(lambda: server.connections)
            (connection,) = server.connections
            # At once, to the socket.
            writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\n")
            if read:
                await wait_until_async(lambda: not connection.idle(server.now()))
            server.close()
            early = await server.drain(0.05)
            writer.write(b"x")
            late = await server.drain(HANG_S)
            answer = await reader.read()
            writer.close()
            return early, late, answer

    early, late, answer = asyncio.run(run())
    assert (False, True) == (early, late)
    assert b"connection: close\r\n" in answer
    assert answer.endswith(b"POST / x")


def test_drain_waits_until_responses_are_read() -> None:
    """A client that reads slowly gets its complete response."""
    size = 30_000_000

    async def run() -> bytes:
        def app(exchange: Exchange) -> None:
            exchange.reply(200, b"x" * size)

        async with serving(app) as server, asyncio.timeout(HANG_S):
            reader, writer = await connect(server)
            writer.transport.pause_reading()  # type: ignore[attr-defined] # there is no other way
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            await wait_until_async(lambda: server.behind)
            server.close()
            assert not await server.drain(0.05)
            writer.transport.resume_reading()  # type: ignore[attr-defined]
            answer, drained = await asyncio.gather(reader.read(), server.drain(HANG_S))
            writer.close()
            assert drained
            return answer

    assert len(asyncio.run(run())) > size


def test_retiring_server_announces_close_in_next_response() -> None:
    """Idle and new clients get one more response each, which announces the close."""

    async def run() -> list[bytes]:
        async with serving() as server, asyncio.timeout(HANG_S):
            known = await connect(server)
            known[1].write(b"GET /1 HTTP/1.1\r\nhost: x\r\n\r\n")
            first = await known[0].readuntil(b"GET /1 ")
            server.retire()
            assert not await server.drain(0.0)  # there is one that may ask
            known[1].write(b"GET /2 HTTP/1.1\r\nhost: x\r\n\r\n")
            second = await known[0].read()
            third = await spoken(server, b"GET /3 HTTP/1.1\r\nhost: x\r\n\r\n")
            assert await server.drain(HANG_S)
            known[1].close()
            return [first, second, third]

    first, second, third = asyncio.run(run())
    assert b"connection: close" not in first
    assert second.endswith(b"connection: close\r\n\r\nGET /2 ")
    assert third.endswith(b"connection: close\r\n\r\nGET /3 ")


def test_connection_limit_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection limit is logged once, even if a process has several servers."""
    monkeypatch.setattr("carpool.http.server.resource.getrlimit", lambda _: (300, 300))
    server_module._say_fewer.cache_clear()
    caplog.set_level("INFO")
    assert (150, 37) == server_module._places(200) == server_module._places(200)
    assert ["at most 150 connections, because the process may open 300 files"] == caplog.messages
