"""The connection pool against real sockets: which connection is used, when, and for how long."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

import pytest

from carpool.http.client import ConnectionFailed, Pool, Response
from carpool.http.server import Exchange, serve
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from pathlib import Path


def echo(exchange: Exchange) -> None:
    """Reply with the body, and with the target in a header."""
    headers = [("x-target", exchange.target)]
    exchange.reply(201, exchange.body, "text/plain", headers)


@pytest.mark.parametrize("size", [0, 10, 100_000, 3_000_000])
@pytest.mark.parametrize("unix", [False, True])
def test_bodies_are_transferred_both_ways(size: int, unix: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """Bodies of any size are transferred both ways, over TCP and over a Unix socket."""

    async def run() -> None:
        listen = f"unix:{tmp_path}/s" if unix else "127.0.0.1:0"
        server = await serve(echo, listen=listen)
        pool = Pool(server.address)
        body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        response = await pool.request("POST", "/a?b", [("x-y", "z")], body)
        assert (201, body, b"/a?b") == (
            response.status,
            response.body,
            response.header(b"x-target"),
        )
        pool.close()
        await server.stop()

    asyncio.run(run())


def test_connections_are_used_again_and_bounded() -> None:
    """Twenty requests use at most four connections."""

    async def run() -> None:
        server = await serve(echo, listen="127.0.0.1:0")
        pool = Pool(server.address, max_connections=4)
        await asyncio.gather(*[pool.request("GET", f"/{i}") for i in range(20)])
        assert 1 <= len(server.connections) <= 4
        pool.close()
        await server.stop()

    asyncio.run(run())


def test_an_address_without_a_server_is_an_error() -> None:
    """The error of a refused connection names the address and says that nothing was sent."""

    async def run() -> None:
        await Pool("127.0.0.1:1").request("GET", "/")

    with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:1") as caught:
        asyncio.run(run())
    assert not caught.value.sent


def test_only_reused_connection_closed_without_response_is_stale() -> None:
    """A connection is stale only if it was used before and closed without a byte of a response."""

    async def run() -> tuple[bool, bool]:
        def app(exchange: Exchange) -> None:
            if exchange.target == "/close":
                exchange.abort()
            echo(exchange)

        server = await serve(app, listen="127.0.0.1:0")
        pool, found = Pool(server.address), []
        for targets in (["/close"], ["/", "/close"]):
            with pytest.raises(ConnectionFailed) as caught:  # noqa: PT012 - by the last one
                for target in targets:
                    await pool.request("POST", target)
            assert caught.value.sent
            found.append(caught.value.stale)
        pool.close()
        await server.stop()
        return found[0], found[1]

    assert (False, True) == asyncio.run(run())


def test_client_reconnects_after_server_closes_without_notice() -> None:
    """If a server closes without notice, as uvicorn does, the next request reconnects."""

    async def crash(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 4\r\n\r\noops")
        writer.close()

    async def run() -> list[int]:
        server = await asyncio.start_server(crash, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        pool = Pool(f"{host}:{port}")
        answers = [await pool.request("GET", "/") for _ in range(3)]
        pool.close()
        server.close()
        await server.wait_closed()
        return [answer.status for answer in answers]

    assert [500, 500, 500] == asyncio.run(run())


def test_connecting_to_unresponsive_peer_times_out() -> None:
    """Connecting to a peer that does not respond times out, and nothing was sent."""

    async def scene() -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
            where = full.getsockname()
            with socket.create_connection(where), socket.socket() as second:
                second.settimeout(0)
                second.connect_ex(where)
                pool = Pool(f"127.0.0.1:{where[1]}", connect_s=0.05)
                with pytest.raises(ConnectionFailed, match=r"not within 0\.05 s") as caught:
                    await pool.request("GET", "/", timeout_s=HANG_S)
                assert not caught.value.sent

    asyncio.run(scene())


def test_a_timeout_closes_the_connection() -> None:
    """The peer learns that the caller has left after a timeout."""

    async def run() -> None:
        gone = asyncio.Event()

        def never(exchange: Exchange) -> None:
            if exchange.target == "/ready":
                exchange.reply(200)
            else:
                exchange.on_gone = gone.set

        server = await serve(never, listen="127.0.0.1:0")
        pool = Pool(server.address)
        await pool.request("GET", "/ready")  # the connection is there: what is asked next arrives
        with pytest.raises(TimeoutError):
            await pool.request("GET", "/", timeout_s=0.05)
        await gone.wait()
        await server.stop()

    asyncio.run(run())


def test_stream_is_read_incrementally_with_backpressure() -> None:
    """A stream yields its head, then its pieces; a reader that pauses also pauses the peer."""

    async def run() -> None:
        sent = 0

        async def produce(exchange: Exchange) -> None:
            nonlocal sent
            exchange.start(200)
            for _ in range(200):
                exchange.write(b"x" * 100_000)
                sent += 100_000
                await exchange.drained()
            exchange.end()

        tasks = []

        def app(exchange: Exchange) -> None:
            tasks.append(asyncio.get_running_loop().create_task(produce(exchange)))

        server = await serve(app, listen="127.0.0.1:0")
        pool = Pool(server.address)
        received = 0
        async with pool.stream("GET", "/") as response:
            assert 200 == response.status
            await wait_until_async(lambda: response._connection._paused)
            for _ in range(100):  # nothing is read any more: it goes on until the buffers are full
                await asyncio.sleep(0)
            assert sent < 20_000_000
            async for chunk in response.chunks():
                received += len(chunk)
        assert 20_000_000 == received
        pool.close()
        await server.stop()

    asyncio.run(run())


@pytest.mark.parametrize("size", [0, 10, 100_000])
def test_bodies_may_be_sent_as_one_chunk(size: int) -> None:
    """A body may be sent as one chunk without a length, and the connection is reused."""

    def app(exchange: Exchange) -> None:
        assert exchange.header(b"content-length") is None
        assert b"chunked" == exchange.header(b"transfer-encoding")
        echo(exchange)

    async def run() -> None:
        server = await serve(app, listen="127.0.0.1:0")
        pool = Pool(server.address)
        for _ in range(2):
            async with pool.stream("POST", "/", body=b"x" * size, chunked=True) as response:
                body = b"".join([chunk async for chunk in response.chunks()])
            assert (201, b"x" * size) == (response.status, body)
        assert 1 == len(server.connections)
        pool.close()
        await server.stop()

    asyncio.run(run())


def test_request_can_be_cancelled_while_connecting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Cancelling works between the connection being made and the waiting task resuming."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        made: asyncio.Future[tuple[None, None]] = loop.create_future()

        async def connection(*_: object) -> tuple[None, None]:
            return await made

        monkeypatch.setattr(loop, "create_connection", connection)
        connecting = asyncio.ensure_future(Pool("127.0.0.1:1", connect_s=HANG_S)._connect())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        made.set_result((None, None))
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting

    asyncio.run(run())


def test_response_is_reported_equally_soon_on_new_and_idle_connections(
    tmp_path: Path,
) -> None:
    """A response is reported in the event-loop iteration after the one that read it."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        waiting: list[Exchange] = []
        server = await serve(waiting.append, listen=f"unix:{tmp_path}/s")
        pool = Pool(server.address)
        iterations = 0

        def count() -> None:
            nonlocal iterations
            iterations += 1
            loop.call_soon(count)

        async def iterations_until_reported() -> int:
            reported: list[object] = []
            pool.begin("GET", "/", (), b"").then(
                lambda outcome: reported.extend((outcome, iterations))
            )
            await wait_until_async(lambda: waiting, what="the request")
            began = iterations
            echo(waiting.pop())
            await wait_until_async(lambda: reported, what="the response")
            response, ended = reported
            assert isinstance(response, Response)
            assert isinstance(ended, int)
            return ended - began

        count()
        new, idle = [await iterations_until_reported() for _ in range(2)]
        assert 1 == len(server.connections)
        assert new == idle
        pool.close()
        await server.stop()

    asyncio.run(run())


def test_connection_is_not_reused_after_response_that_was_not_read() -> None:
    """A response that pauses reading with its last byte, and is left, does not block the next."""
    body = bytes(256 * 1024 + 1)
    last, ended = asyncio.Event(), list[int]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionResetError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body))
                writer.write(body[:-1])
                await last.wait()
                writer.write(body[-1:])
        writer.close()
        ended.append(1)

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        pool = Pool(f"{host}:{port}")
        async with pool.stream("GET", "/") as left:
            connection = left._connection
            await wait_until_async(lambda: sum(map(len, connection.chunks)) == len(body) - 1)
            assert not connection._paused
            last.set()
            await wait_until_async(lambda: connection.complete)
            assert connection._paused
        assert 200 == (await pool.request("GET", "/", timeout_s=HANG_S)).status
        pool.close()
        await wait_until_async(lambda: len(ended) == 2)
        server.close()

    asyncio.run(run())
