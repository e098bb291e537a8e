"""The pool of connections against real sockets: which is used, when, and for how long."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from carpool.http.client import ConnectionFailed, Pool, Response
from carpool.http.server import Exchange, serve
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from pathlib import Path


def echo(exchange: Exchange) -> None:
    """Answer with the body and what was asked."""
    headers = [("x-target", exchange.target)]
    exchange.reply(201, exchange.body, "text/plain", headers)


@pytest.mark.parametrize("size", [0, 10, 100_000, 3_000_000])
@pytest.mark.parametrize("unix", [False, True])
def test_bodies_go_there_and_back(size: int, unix: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """Any size, over TCP and over a Unix socket."""

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
    """Twenty requests over at most four connections."""

    async def run() -> None:
        server = await serve(echo, listen="127.0.0.1:0")
        pool = Pool(server.address, max_connections=4)
        await asyncio.gather(*[pool.request("GET", f"/{i}") for i in range(20)])
        assert 1 <= len(server.connections) <= 4
        pool.close()
        await server.stop()

    asyncio.run(run())


def test_an_address_without_a_server_is_an_error() -> None:
    """A refused connection names the address, and says that nothing was sent."""

    async def run() -> None:
        await Pool("127.0.0.1:1").request("GET", "/")

    with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:1") as caught:
        asyncio.run(run())
    assert not caught.value.sent


def test_a_connection_that_was_used_before_may_be_stale() -> None:
    """Closed without a byte of an answer it is; a first request was sent to no idle connection."""

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


def test_a_server_may_close_after_an_internal_error() -> None:
    """As uvicorn does, without notice: the next request gets another connection."""

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


def test_who_does_not_answer_at_all_is_not_waited_for() -> None:
    """As a machine that is gone: no connection is made, and so nothing was sent."""

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
    """The peer learns that the caller has left."""

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


def test_a_stream_is_read_as_it_comes_and_holds_back_a_fast_peer() -> None:
    """Head first, then pieces; a reader that pauses is not buried in memory."""

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
    """Without a length; the connection is used again."""

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


def test_a_request_cancelled_as_its_connection_is_made_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection is there, and the task that waits for it has not yet been told."""

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


def test_a_response_over_a_new_connection_is_reported_as_soon_as_over_an_idle_one(
    tmp_path: Path,
) -> None:
    """In the iteration of the event loop after the one that read it."""

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
