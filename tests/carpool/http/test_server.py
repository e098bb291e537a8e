"""The HTTP edge, spoken to in raw bytes over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from carpool.errors import Overloaded, QueueFull
from carpool.http.server import Exchange, Limits, Server, serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

LIMITS = Limits(head_bytes=2000, body_bytes=1000, idle_s=1.0, read_s=1.0, connections=20)


def echo(exchange: Exchange) -> None:
    """Answer with what was asked."""
    line = f"{exchange.method} {exchange.target} ".encode()
    exchange.reply(200, line + exchange.body, "text/plain")


@contextlib.asynccontextmanager
async def serving(
    app: Callable[[Exchange], None] = echo, limits: Limits = LIMITS
) -> AsyncIterator[Server]:
    """A server on a port of the system's choice."""
    server = await serve(app, listen="127.0.0.1:0", limits=limits)
    try:
        yield server
    finally:
        await server.stop()


async def connect(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client's side of a new connection."""
    host, _, port = server.address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def spoken(server: Server, *pieces: bytes) -> bytes:
    """Send ``pieces`` one write each, and return all that comes back within five seconds."""
    reader, writer = await connect(server)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
    async with asyncio.timeout(5):
        answer = await reader.read()
    writer.close()
    return answer


def once(*pieces: bytes, app: Callable[[Exchange], None] = echo) -> bytes:
    """What a server answers to ``pieces``; they must ask for the connection to be closed."""

    async def run() -> bytes:
        async with serving(app) as server:
            return await spoken(server, *pieces)

    return asyncio.run(run())


CLOSE = b"connection: close\r\n\r\n"


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
    """A client that asks before it sends is told to go on."""
    raw = b"POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 1\r\n" + CLOSE
    assert once(raw, b"x").startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")


REFUSED = {
    "both lengths": (
        400,
        b"POST / HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n",
    ),
    "two lengths": (400, b"POST / HTTP/1.1\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\n"),
    "negative length": (400, b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n"),
    "signed length": (400, b"POST / HTTP/1.1\r\ncontent-length: +1\r\n\r\nx"),
    "bad chunk size": (400, b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"),
    "chunked in 1.0": (400, b"POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
    "other coding": (501, b"POST / HTTP/1.1\r\ntransfer-encoding: gzip, chunked\r\n\r\n"),
    "folded header": (400, b"GET / HTTP/1.1\r\na: b\r\n c\r\n\r\n"),
    "space in name": (400, b"GET / HTTP/1.1\r\na : b\r\n\r\n"),
    "no method": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    "huge header": (431, b"GET / HTTP/1.1\r\na: " + b"b" * 3000 + b"\r\n\r\n"),
    "endless header": (431, b"GET / HTTP/1.1\r\na: " + b"b" * 3000),
    "large body": (413, b"POST / HTTP/1.1\r\ncontent-length: 1001\r\n\r\n"),
    "large chunks": (
        413,
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3e9\r\n" + b"x" * 1001,
    ),
}


@pytest.mark.parametrize(("status", "raw"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_is_refused_and_closed(status: int, raw: bytes) -> None:
    """A clear status, a reason, and an end: the framing behind it cannot be trusted."""
    answer = once(raw)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b'{"error": "' in answer
    assert 1 == answer.count(b"\r\ndate: ")


def test_an_oversized_upload_still_hears_why() -> None:
    """The client goes on sending while it is refused; the answer arrives all the same."""
    raw = b"POST / HTTP/1.1\r\ncontent-length: 5000000\r\n\r\n"
    assert b" 413 " in once(raw + b"x" * 500_000)


def test_a_slow_request_is_given_up() -> None:
    """A request that trickles in for longer than read_s gets 408 and the door."""
    answer = once(b"POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nab")
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_an_idle_connection_is_closed_silently() -> None:
    """Nothing asked for longer than idle_s: closed, with nothing said."""
    assert b"" == once()


def test_too_many_connections_are_turned_away() -> None:
    """Beyond the limit a client gets 503 instead of an ever longer queue of sockets."""

    async def run() -> bytes:
        async with serving(limits=Limits(connections=2)) as server:
            held = [await connect(server) for _ in range(2)]
            while len(server.connections) < 2:  # noqa: ASYNC110 - two accepts of the loop
                await asyncio.sleep(0)
            answer = await spoken(server)
            for _, writer in held:
                writer.close()
            return answer

    assert asyncio.run(run()).startswith(b"HTTP/1.1 503 ")


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

        async with serving(app) as server, asyncio.timeout(5):
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

        async with serving(app) as server, asyncio.timeout(5):
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
