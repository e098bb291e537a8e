"""The HTTP server under test, either over real sockets or fed piece by piece without sockets."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from carpool.http.connection import Connection
from carpool.http.server import Exchange, Limits, Server, serve
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

__all__ = [
    "CLOSE",
    "LIMITS",
    "Socketless",
    "connect",
    "deaf_client",
    "echo",
    "once",
    "serving",
    "spoken",
]

LIMITS = Limits(head_bytes=2000, body_bytes=1000, idle_s=1.0, read_s=1.0, connections=20)
CLOSE = b"connection: close\r\n\r\n"


def echo(exchange: Exchange) -> None:
    """Reply with the method, target and body of the request."""
    line = f"{exchange.method} {exchange.target} ".encode()
    exchange.reply(200, line + exchange.body, "text/plain")


class Socketless(asyncio.Transport):
    """A connection without a socket: the test is the client and decides what is read and when.

    Args:
        server: it need not listen.
        stuck: whether the client never reads, so that the connection cannot be closed gracefully.
        takes: number of bytes that the client takes before `take` is called.

    Attributes:
        sent: bytes written to the client.
        reading: whether the server accepts more input.
        closed: whether the server has closed the connection.
    """

    def __init__(self, server: Server, *, stuck: bool = False, takes: int = 10**9) -> None:
        super().__init__()
        self._stuck = stuck
        self._takes = takes
        self._most_untaken = 0
        self._loop = server.loop
        self._protocol = Connection(server)
        self.sent = bytearray()
        self.reading = True
        self.closed = False
        self._protocol.connection_made(self)

    def feed(self, *pieces: bytes) -> None:
        """Deliver ``pieces``, one per read, as long as the server accepts input."""
        for piece in pieces:
            if piece and self.reading and not self.closed:
                self._protocol.data_received(piece)

    def later(self, seconds: float) -> None:
        """Have the server check its timeouts as if ``seconds`` had passed."""
        self._protocol.expire(self._protocol.server.now() + seconds)

    def take(self, size: int = 10**9) -> None:
        """Take ``size`` more bytes of what was sent to the client."""
        behind = self.get_write_buffer_size() > self._most_untaken
        self._takes += size
        if behind and self.get_write_buffer_size() <= self._most_untaken:
            self._protocol.resume_writing()

    def hang_up(self) -> None:
        """Disconnect the client."""
        self.abort()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.closed:
            return
        behind = self.get_write_buffer_size() > self._most_untaken
        self.sent += data
        if not behind and self.get_write_buffer_size() > self._most_untaken:
            self._protocol.pause_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert (high, low) == (0, None), "a server is to be told of the first byte"
        self._most_untaken = 0

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        assert not self.closed

    def get_write_buffer_size(self) -> int:
        return 0 if self.closed else max(0, len(self.sent) - self._takes)

    def get_extra_info(self, name: str, default: object = None) -> object:
        del name
        return default

    def close(self) -> None:
        if not self._stuck:
            self.abort()

    def abort(self) -> None:
        if not self.closed:
            self.closed = True
            self._loop.call_soon(self._protocol.connection_lost, None)


@contextlib.asynccontextmanager
async def serving(
    app: Callable[[Exchange], None] = echo, limits: Limits = LIMITS
) -> AsyncIterator[Server]:
    """Run a server, and assert at the end that it has released all its memory."""
    server = await serve(app, listen="127.0.0.1:0", limits=limits)
    try:
        yield server
    finally:
        await server.stop()
    await asyncio.sleep(0)
    assert 0 == server.held_bytes
    assert not server.connections


async def connect(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection and return its client side."""
    host, _, port = server.address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


@contextlib.asynccontextmanager
async def deaf_client(server: Server, *pieces: bytes) -> AsyncIterator[asyncio.StreamWriter]:
    """Connect a client that sends ``pieces`` as fast as the server takes them, and never reads."""
    reader, writer = await connect(server)
    writer.transport.pause_reading()  # type: ignore[attr-defined] # there is no other way
    sending = asyncio.create_task(_send(writer, pieces))
    try:
        yield writer
    finally:
        sending.cancel()
        writer.transport.abort()
        del reader


async def _send(writer: asyncio.StreamWriter, pieces: Iterable[bytes]) -> None:
    with contextlib.suppress(ConnectionError):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()


async def spoken(server: Server, *pieces: bytes) -> bytes:
    """Send each of ``pieces`` in a write of its own, and return everything that is received."""
    reader, writer = await connect(server)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
    async with asyncio.timeout(HANG_S):
        answer = await reader.read()
    writer.close()
    return answer


def once(*pieces: bytes, app: Callable[[Exchange], None] = echo, limits: Limits = LIMITS) -> bytes:
    """Return a server's response to ``pieces``, which must ask for the connection to be closed."""

    async def run() -> bytes:
        async with serving(app, limits) as server:
            return await spoken(server, *pieces)

    return asyncio.run(run())
