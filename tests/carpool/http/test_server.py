"""The HTTP edge over real sockets: requests, answers and their order, errors, the end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from carpool.errors import Overloaded, QueueFull
from carpool.http import server as server_module
from tests.carpool.http.edge import CLOSE, connect, once, serving, spoken
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from carpool.http.server import Exchange


def test_a_request_is_answered() -> None:
    """Status line, length, body, and the close that was asked for."""
    answer = once(b"GET /a?b=c HTTP/1.1\r\nhost: x\r\n" + CLOSE)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nGET /a?b=c ")
    assert b"connection: close\r\n" in answer


def test_a_body_may_come_in_any_pieces() -> None:
    """Byte by byte gives the same answer."""
    raw = b"POST / HTTP/1.1\r\ncontent-length: 3\r\n" + CLOSE + b"abc"
    assert once(*[raw[i : i + 1] for i in range(len(raw))]).endswith(b"POST / abc")


def test_a_chunked_body_is_decoded() -> None:
    """Chunks, extensions and trailers go, the body stays."""
    raw = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n" + CLOSE
    assert once(raw + b"3;x=1\r\nabc\r\n2\r\nde\r\n0\r\nt: 1\r\n\r\n").endswith(b"POST / abcde")


def test_pipelined_requests_are_answered_in_order() -> None:
    """The second is answered first by the application, and still sent second."""
    waiting: list[Exchange] = []

    def backwards(exchange: Exchange) -> None:
        waiting.append(exchange)
        if len(waiting) == 3:
            for held in reversed(waiting):
                held.reply(200, held.target.encode())

    raw = b"GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\nGET /3 HTTP/1.1\r\n" + CLOSE
    answer = once(raw, app=backwards)
    assert answer.index(b"/1") < answer.index(b"/2") < answer.index(b"/3")


@pytest.mark.parametrize("status", [204, 304])
def test_a_streamed_answer_without_a_body(status: int) -> None:
    """No chunk, not even the last: it would be taken for the beginning of the next answer."""

    def stream(exchange: Exchange) -> None:
        exchange.start(status, [("x-a", "b")])
        exchange.write(b"ab")
        exchange.end()

    answer = once(b"GET / HTTP/1.1\r\n" + CLOSE, app=stream)
    assert b"transfer-encoding" not in answer
    assert answer.endswith(b"\r\n\r\n")
    assert b"" == answer.partition(b"\r\n\r\n")[2]


def test_a_streamed_answer_is_chunked() -> None:
    """Parts go out as they are written."""

    def stream(exchange: Exchange) -> None:
        exchange.start(200, [("content-type", "text/plain")])
        exchange.write(b"ab")
        exchange.write(b"")
        exchange.write(b"c")
        exchange.end()

    answer = once(b"GET / HTTP/1.1\r\n" + CLOSE, app=stream)
    assert answer.endswith(b"\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")


def test_head_has_no_body() -> None:
    """The length is told, the body is not sent."""
    answer = once(b"HEAD / HTTP/1.1\r\n" + CLOSE)
    assert b"content-length: 7\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


def test_expect_100_continue_is_answered() -> None:
    """A client that asks before it sends is told to go on, once; not where it has sent already."""

    async def run() -> tuple[bytes, bytes]:
        async with serving() as server, asyncio.timeout(HANG_S):
            reader, writer = await connect(server)
            writer.write(
                b"POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 1\r\n" + CLOSE
            )
            interim = await reader.readuntil(b"\r\n\r\n")
            writer.write(b"x")
            final = await reader.read()
            writer.close()
            return interim, final

    interim, final = asyncio.run(run())
    assert b"HTTP/1.1 100 Continue\r\n\r\n" == interim
    assert final.startswith(b"HTTP/1.1 200 OK")
    unasked = b"POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 1\r\n" + CLOSE + b"x"
    assert once(unasked).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("framing", [b"content-length: 3\r\n", b"transfer-encoding: chunked\r\n"])
def test_an_offer_of_another_protocol_is_declined(framing: bytes) -> None:
    """HTTP/2 in the clear is offered by Java's client by default: body and connection survive."""
    body = b"abc" if b"length" in framing else b"3\r\nabc\r\n0\r\n\r\n"
    offer = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"
    first = b"POST /1 HTTP/1.1\r\n" + offer + framing + b"\r\n" + body
    bare = b"GET /2 HTTP/1.1\r\n" + offer + b"\r\n"
    answer = once(first + first + bare + b"GET /3 HTTP/1.1\r\n" + CLOSE)
    assert 4 == answer.count(b"HTTP/1.1 200 OK")
    assert 2 == answer.count(b"POST /1 abc")
    assert answer.index(b"GET /2 ") < answer.index(b"GET /3 ")


def test_a_client_of_http_1_0_gets_no_chunks() -> None:
    """Its answers end with the connection, streamed ones too."""

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


def test_a_client_that_leaves_is_noticed() -> None:
    """The application hears of it once, and a late answer is dropped."""

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
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await arrived.wait()
            writer.close()
            await gone.wait()
        return seen

    assert ["gone"] == asyncio.run(run())


def test_errors_of_the_application_become_answers() -> None:
    """An error of ours has its status and Retry-After; any other exception is a bare 500."""

    def app(exchange: Exchange) -> None:
        if exchange.target == "/full":
            msg = "no room"
            raise QueueFull(msg, retry_after_s=2.2)
        if exchange.target == "/busy":
            msg = "busy"
            raise Overloaded(msg)
        raise ZeroDivisionError

    def ask(target: bytes) -> bytes:
        return once(b"GET %b HTTP/1.1\r\n" % target + CLOSE, app=app)

    full = ask(b"/full")
    assert full.startswith(b"HTTP/1.1 429 ")
    assert b"retry-after: 3\r\n" in full
    assert full.endswith(b'{"error": "no room"}')
    assert ask(b"/busy").startswith(b"HTTP/1.1 503 ")
    broken = ask(b"/x")
    assert broken.startswith(b"HTTP/1.1 500 ")
    assert b"ZeroDivision" not in broken


def test_closing_answers_what_was_asked() -> None:
    """A closing server finishes its exchanges, says so in the last answer, and is then quiet."""

    async def run() -> tuple[bool, bool, bytes]:
        waiting: list[Exchange] = []
        arrived = asyncio.Event()

        def app(exchange: Exchange) -> None:
            waiting.append(exchange)
            arrived.set()

        async with serving(app) as server, asyncio.timeout(HANG_S):
            reader, writer = await connect(server)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
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
def test_closing_answers_what_was_being_asked(read: bool) -> None:  # noqa: FBT001
    """A request that has begun to come is answered, even if nothing of it was read yet."""

    async def run() -> tuple[bool, bool, bytes]:
        async with serving() as server, asyncio.timeout(HANG_S):
            reader, writer = await connect(server)
            await wait_until_async(lambda: server.connections)
            (connection,) = server.connections
            writer.write(b"POST / HTTP/1.1\r\ncontent-length: 1\r\n\r\n")  # at once, to the socket
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


def test_a_server_that_drains_waits_until_its_answers_are_taken() -> None:
    """A client that reads slowly gets all of its answer."""
    size = 30_000_000

    async def run() -> bytes:
        def app(exchange: Exchange) -> None:
            exchange.reply(200, b"x" * size)

        async with serving(app) as server, asyncio.timeout(HANG_S):
            reader, writer = await connect(server)
            writer.transport.pause_reading()  # type: ignore[attr-defined] # there is no other way
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await wait_until_async(lambda: server.behind)
            server.close()
            assert not await server.drain(0.05)
            writer.transport.resume_reading()  # type: ignore[attr-defined]
            answer, drained = await asyncio.gather(reader.read(), server.drain(HANG_S))
            writer.close()
            assert drained
            return answer

    assert len(asyncio.run(run())) > size


def test_clients_of_a_server_that_retires_are_told_to_go_elsewhere() -> None:
    """Those that are idle may ask once more, new ones too; each answer is a connection's last."""

    async def run() -> list[bytes]:
        async with serving() as server, asyncio.timeout(HANG_S):
            known = await connect(server)
            known[1].write(b"GET /1 HTTP/1.1\r\n\r\n")
            first = await known[0].readuntil(b"GET /1 ")
            server.retire()
            assert not await server.drain(0.0)  # there is one that may ask
            known[1].write(b"GET /2 HTTP/1.1\r\n\r\n")
            second = await known[0].read()
            third = await spoken(server, b"GET /3 HTTP/1.1\r\n\r\n")
            assert await server.drain(HANG_S)
            known[1].close()
            return [first, second, third]

    first, second, third = asyncio.run(run())
    assert b"connection: close" not in first
    assert second.endswith(b"connection: close\r\n\r\nGET /2 ")
    assert third.endswith(b"connection: close\r\n\r\nGET /3 ")


def test_the_limit_of_connections_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A process may have several servers, all with the same limit."""
    monkeypatch.setattr("carpool.http.server.resource.getrlimit", lambda _: (300, 300))
    server_module._say_fewer.cache_clear()
    caplog.set_level("INFO")
    assert (150, 37) == server_module._places(200) == server_module._places(200)
    assert ["at most 150 connections, because the process may open 300 files"] == caplog.messages
