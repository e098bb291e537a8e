"""How one connection reads a peer's bytes: all framings, broken and unsolicited responses."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from carpool.http.client import AnswerTooLarge, ConnectionFailed, Pool
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from carpool.http.client_connection import ClientConnection


@contextlib.asynccontextmanager
async def peer(script: bytes) -> AsyncIterator[str]:
    """Run a server that waits for data from a client, sends it ``script``, then closes."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(script)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"


async def asked(script: bytes) -> bytes:
    """Return the response body that a client reads from ``script``."""
    async with peer(script) as where:
        pool = Pool(where)
        try:
            return (await pool.request("GET", "/")).body
        finally:
            pool.close()


ANSWERS = {
    "length": (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", b"hi"),
    "chunks": (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nh\r\n1\r\ni\r\n0\r\n\r\n",
        b"hi",
    ),
    "until closed": (b"HTTP/1.1 200 OK\r\n\r\nhi", b"hi"),
    "interim first": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi",
        b"hi",
    ),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
}


@pytest.mark.parametrize(("script", "body"), ANSWERS.values(), ids=ANSWERS)
def test_every_framing_is_understood(script: bytes, body: bytes) -> None:
    """A response may end by length, chunks or close, and may follow interim responses."""
    assert body == asyncio.run(asked(script))


@pytest.mark.parametrize(
    "script",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhi",
        b"SSH-2.0-x\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nhi!",
    ],
    ids=["nothing", "cut", "not http", "half a head", "switch", "both lengths", "two lengths"],
)
def test_malformed_response_is_an_error(script: bytes) -> None:
    """A truncated or malformed response raises an error instead of being returned."""
    with pytest.raises(ConnectionFailed) as caught:
        asyncio.run(asked(script))
    assert caught.value.sent


EXCESS = {
    "another answer": b"HTTP/1.1 500 No\r\ncontent-length: 4\r\n\r\nevil",
    "half an answer": b"HTTP/1.1 500 No\r\n",
    "no answer": b"\0\0",
}


@pytest.mark.parametrize("excess", EXCESS.values(), ids=EXCESS)
@pytest.mark.parametrize("late", [False, True], ids=["at once", "later"])
def test_unsolicited_response_closes_the_connection(excess: bytes, late: bool) -> None:  # noqa: FBT001
    """A second response to a request is dropped with its connection, so responses never cross."""

    async def run() -> None:
        talks: list[asyncio.StreamWriter] = []
        answered = asyncio.Event()

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            talks.append(writer)
            answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"
            while await reader.read(1000):
                writer.write(answer if late else answer + excess)
                if late:
                    await answered.wait()
                    answered.clear()
                    writer.write(excess)
            writer.close()

        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        async with server:
            host, port = server.sockets[0].getsockname()
            pool = Pool(f"{host}:{port}")
            for i in range(3):
                response = await pool.request("GET", "/")
                assert (200, b"hi") == (response.status, response.body)
                assert i + 1 == len(talks)
                answered.set()
                await wait_until_async(talks[-1].is_closing)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n"),
        (b"HTTP/1.1 200 OK\r\nx: ", b"y"),
        (b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n", b"x: y\r\n"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;", b"x"),
    ],
    ids=["headers", "a header", "interim answers", "trailers", "an extension"],
)
def test_response_head_and_framing_are_limited(start: bytes, more: bytes) -> None:
    """A response whose head or framing never ends is aborted; no request waits for its end."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(start)
        with contextlib.suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(more * 1000)
                await writer.drain()

    async def run() -> None:
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        async with server, asyncio.timeout(HANG_S):
            host, port = server.sockets[0].getsockname()
            with pytest.raises(ConnectionFailed, match="head or framing is larger"):
                await Pool(f"{host}:{port}").request("GET", "/")

    asyncio.run(run())


@pytest.mark.parametrize("framing", [b"content-length: 999999999", b"transfer-encoding: chunked"])
def test_response_size_is_limited(framing: bytes) -> None:
    """A response above the pool's limit is not read to its end, with or without a given length."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
                await writer.drain()

    async def run() -> None:
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        async with server, asyncio.timeout(HANG_S):
            host, port = server.sockets[0].getsockname()
            with pytest.raises(AnswerTooLarge, match="larger than 100000 bytes"):
                await Pool(f"{host}:{port}", answer_bytes=100_000).request("GET", "/")

    asyncio.run(run())


def test_reset_does_not_complete_a_response() -> None:
    """A response that ends with its connection is complete only if that was closed gracefully."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhalf of it")
        await writer.drain()
        await reader.read(1000)
        plain: socket.socket = writer.get_extra_info("socket")
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()

    async def run() -> None:
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        async with server:
            host, port = server.sockets[0].getsockname()
            pool = Pool(f"{host}:{port}")
            async with pool.stream("GET", "/") as response:
                chunks = response.chunks()
                assert b"half of it" == await anext(chunks)
                response._connection.transport.write(b"go on")
                await anext(chunks)
            pool.close()

    with pytest.raises(ConnectionFailed):
        asyncio.run(run())


def test_request_fails_unsent_if_peer_has_left() -> None:
    """If the peer leaves before the request, it fails at once, with nothing sent."""

    async def run() -> None:
        async with peer(b"") as where:
            pool = Pool(where)
            connect = pool._connect

            async def too_late() -> ClientConnection:
                connection = await connect()
                connection.transport.write(b"x")  # the peer reads and goes
                await wait_until_async(lambda: not connection.open)
                return connection

            with patch.object(pool, "_connect", too_late):
                await pool.request("POST", "/", timeout_s=HANG_S)

    with pytest.raises(ConnectionFailed) as failed:
        asyncio.run(run())
    assert not failed.value.sent
