"""Clients that trickle, stall, half-close or do not read are dropped in time; others continue."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from carpool.http.server import Exchange, Limits, Server
from tests.carpool.http.edge import Socketless, connect, deaf_client, echo, serving
from tests.waiting import wait_until_async

if TYPE_CHECKING:
    from collections.abc import Callable

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
PATIENT = Limits(idle_s=100.0, read_s=10.0)


def played(script: Callable[[Server], None], app: Callable[[Exchange], None] = echo) -> None:
    """Run ``script`` with a server that has long timeouts and no socket."""

    async def run() -> None:
        server = Server(app, PATIENT, asyncio.get_running_loop())
        script(server)
        for connection in tuple(server.connections):
            connection.abort()
        await asyncio.sleep(0)
        assert 0 == server.held_bytes

    asyncio.run(run())


@pytest.mark.parametrize(
    "part",
    [
        GET[:1],
        GET[:-1],
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nab",
        *(CHUNKED + part for part in (b"", b"5", b"5\r\n", b"5\r\nhel", b"5\r\nhello\r")),
    ],
)
def test_slow_request_gets_408(part: bytes) -> None:
    """A request that trickles in for longer than read_s gets 408."""

    def script(server: Server) -> None:
        client = Socketless(server)
        client.later(90.0)
        client.feed(part)
        client.later(9.0)
        assert not client.sent
        client.later(11.0)
        assert client.sent.startswith(b"HTTP/1.1 408 ")

    played(script)


def test_slow_pipelined_request_times_out() -> None:
    """A partial second request times out, even if it arrived with the end of the first."""

    def script(server: Server) -> None:
        client = Socketless(server)
        client.feed(GET + GET[:5])
        client.later(11.0)
        assert b"HTTP/1.1 408 " in client.sent

    played(script)


def test_an_idle_connection_is_closed_silently() -> None:
    """A connection without a request for idle_s is closed silently; blank lines do not count."""

    def script(server: Server) -> None:
        client = Socketless(server)
        client.feed(b"\r\n\r\n")
        client.later(99.0)
        assert not client.closed
        client.later(101.0)
        assert client.closed
        assert not client.sent

    played(script)


def test_waiting_for_the_application_does_not_time_out() -> None:
    """A client that waits for a response does not time out, nor does its partial next request."""
    waiting: list[Exchange] = []

    def script(server: Server) -> None:
        client = Socketless(server)
        client.feed(GET * 100 + GET[:5])
        client.later(1000.0)
        assert not client.closed
        assert not client.sent

    played(script, waiting.append)


def test_refusal_is_sent_after_earlier_responses() -> None:
    """A refusal is sent after the responses before it, however long those take."""
    waiting: list[Exchange] = []

    def script(server: Server) -> None:
        client = Socketless(server)
        client.feed(GET + b"\0")
        client.later(1000.0)
        assert not client.closed
        waiting[0].reply(200, b"first")
        assert client.sent.startswith(b"HTTP/1.1 200 ")
        assert client.sent.index(b"first") < client.sent.index(b"HTTP/1.1 400 ")
        client.later(1.0)
        assert not client.closed
        client.later(3.0)
        assert client.closed

    played(script, waiting.append)


def later(server: Server, seconds: float) -> None:
    """Sweep all connections as if ``seconds`` had passed."""
    if server._sweep:
        server._sweep.cancel()
    now = server.now
    server.now = lambda: now() + seconds
    server._swept = server.now()
    server._tick()
    server.now = now


def test_time_limits_hold_over_sockets() -> None:
    """A slow client gets 408, and an idle one is closed silently."""

    async def run() -> tuple[bytes, bytes]:
        async with serving(limits=PATIENT) as server:
            reader, slow = await connect(server)
            slow.write(GET[:9])
            await wait_until_async(lambda: any(c._reader.partial for c in server.connections))
            later(server, 11.0)
            heard = await reader.read()
            silence, idle = await connect(server)
            await wait_until_async(lambda: any(not c._closing for c in server.connections))
            later(server, 101.0)
            nothing = await silence.read()
            slow.close()
            idle.close()
            return heard, nothing

    heard, nothing = asyncio.run(run())
    assert heard.startswith(b"HTTP/1.1 408 ")
    assert b"" == nothing


def test_a_trickle_does_not_hold_up_others() -> None:
    """While one client sends byte by byte, another is served at once."""

    async def run() -> bytes:
        async with serving() as server:
            _, slow = await connect(server)
            reader, fast = await connect(server)
            answers = b""
            for byte in b"GET /slow":
                slow.write(bytes([byte]))
                fast.write(GET)
                answers += await reader.readuntil(b"GET / ")
            slow.close()
            fast.close()
            return answers

    assert 9 == asyncio.run(run()).count(b"HTTP/1.1 200 ")


LEFT_UNREAD = {
    "kept open": (GET, lambda _: None),
    "asked to close": (GET[:-2] + b"connection: close\r\n\r\n", lambda _: None),
    "half-closed": (GET, asyncio.StreamWriter.write_eof),
}


@pytest.mark.parametrize(("raw", "then"), LEFT_UNREAD.values(), ids=LEFT_UNREAD)
def test_a_client_that_does_not_read_is_dropped(
    raw: bytes, then: Callable[[asyncio.StreamWriter], None]
) -> None:
    """A response larger than all buffers is not kept for longer than read_s."""

    async def run() -> None:
        answered = asyncio.Event()

        def app(exchange: Exchange) -> None:
            exchange.reply(200, bytes(20_000_000))
            answered.set()

        async with serving(app, PATIENT) as server, deaf_client(server, raw) as client:
            await answered.wait()
            assert server.held_bytes > 1_000_000
            then(client)
            later(server, 9.0)
            assert server.connections
            later(server, 11.0)
            await wait_until_async(lambda: not server.connections)

    asyncio.run(run())


@pytest.mark.parametrize("raw", [GET, GET[:-2] + b"connection: close\r\n\r\n"])
def test_closing_does_not_wait_for_a_client_that_does_not_read(raw: bytes) -> None:
    """A connection is closed even if a response too small for any buffer limit is unread."""

    def script(server: Server) -> None:
        client = Socketless(server, stuck=True)
        client.feed(raw)
        client.later(101.0)
        client.later(11.0)
        assert client.closed

    played(script)


def test_half_close_cancels_requests() -> None:
    """The requests of a client that closes its sending side are cancelled at once."""

    async def run() -> None:
        arrived, gone = asyncio.Event(), asyncio.Event()

        def app(exchange: Exchange) -> None:
            exchange.on_gone = gone.set
            arrived.set()

        async with serving(app) as server:
            reader, writer = await connect(server)
            writer.write(GET)
            await arrived.wait()
            writer.write_eof()
            await gone.wait()
            assert b"" == await reader.read()
            writer.close()

    asyncio.run(run())


def test_reset_cancels_requests() -> None:
    """The application is notified of a reset connection, and a late response is dropped."""

    async def run() -> None:
        asked: list[Exchange] = []
        async with serving(asked.append) as server:
            _, writer = await connect(server)
            plain: socket.socket = writer.get_extra_info("socket")
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            writer.write(GET * 3)
            await wait_until_async(lambda: len(asked) == 3)
            writer.transport.abort()
            await wait_until_async(lambda: all(exchange.gone for exchange in asked))
            for exchange in asked:
                exchange.reply(200)

    asyncio.run(run())


def test_an_error_while_cancelling_harms_no_other_request() -> None:
    """All requests of a lost connection are cancelled, even if the first callback fails."""
    cancelled: list[str] = []

    def app(exchange: Exchange) -> None:
        def gone() -> None:
            cancelled.append(exchange.target)
            if exchange.target == "/1":
                raise ZeroDivisionError

        exchange.on_gone = gone

    async def run() -> None:
        async with serving(app) as server:
            _, writer = await connect(server)
            writer.write(b"GET /1 HTTP/1.1\r\nhost: x\r\n\r\nGET /2 HTTP/1.1\r\nhost: x\r\n\r\n")
            await wait_until_async(lambda: server.held_bytes)
            writer.close()
            await wait_until_async(lambda: len(cancelled) == 2)

    asyncio.run(run())
    assert ["/1", "/2"] == cancelled
