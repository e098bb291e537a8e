"""The client edge: keep-alive connections to one address, one request at a time on each.

Answers are whole (`Pool.request`) or streamed with back-pressure (`Pool.stream`). Nothing is ever
sent twice: whether a request may be repeated is for the caller to decide, who knows what it does.
Cancelling the calling task closes the connection, which is how the other side learns of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import httptools

from carpool import address as addresses
from carpool.errors import FunctionFault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from carpool.wire import Buffer

__all__ = ["Begun", "ConnectionFailed", "Pool", "Response", "StreamedResponse"]

_HIGH_WATER_BYTES = 256 * 1024
_JOIN_BELOW_BYTES = 64 * 1024


class ConnectionFailed(FunctionFault):
    """The peer could not be reached, closed early, or did not answer in HTTP/1.1.

    Attributes:
        sent: whether any of the request may have reached the peer.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class Response(NamedTuple):
    """A whole answer; header names in lower case."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def header(self, name: bytes) -> bytes | None:
        """The last value of the header ``name`` (lower case), or None."""
        for key, value in reversed(self.headers):
            if key == name:
                return value
        return None


class StreamedResponse:
    """An answer whose body is read as it arrives."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self.status = connection.status
        self.headers = connection.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body, in the pieces the network delivers."""
        connection = self._connection
        while True:
            while connection.chunks:
                yield connection.next_chunk()
            if connection.complete:
                return
            await connection.progress()


class _Connection(asyncio.Protocol):
    """One socket to the peer."""

    transport: asyncio.Transport

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[None] | None = None
        self._failure: ConnectionFailed | None = None
        self._paused = False
        self._buffered = 0
        self.open = False
        self.used_at = 0.0
        self._reset()
        self.complete = True  # no request is under way

    def _reset(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.chunks: deque[bytes] = deque()
        self.head_complete = False
        self.complete = False
        self.reusable = False
        self._headless = False

    def send(self, method: str, head: bytes, body: Buffer) -> None:
        """Start a request; the connection must be idle."""
        self._reset()
        self._headless = method == "HEAD"
        if len(body) < _JOIN_BELOW_BYTES:
            self.transport.write(b"".join((head, body)))
        else:
            self.transport.write(head)
            self.transport.write(body)

    async def progress(self) -> None:
        """Wait until more of the answer is here; raises if it will not come."""
        if self._failure:
            raise self._failure
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def next_chunk(self) -> bytes:
        """Take one piece of the body; reading resumes when enough has been taken."""
        chunk = self.chunks.popleft()
        self._buffered -= len(chunk)
        if self._paused and self._buffered < _HIGH_WATER_BYTES:
            self._paused = False
            self.transport.resume_reading()
        return chunk

    def close(self) -> None:
        """Close at once, answered or not."""
        self.open = False
        self.transport.abort()

    # -- asyncio ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.open = True

    def data_received(self, data: bytes) -> None:
        if self.complete:  # nobody asked: this must not become the answer to the next request
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.close()
            if not self.complete:
                self._fail(f"the answer is not HTTP/1.1: {error}")
                return
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        if self.head_complete and not (self.complete or exc) and self._ends_with_connection():
            self.complete = True
            self._wake()
        elif not self.complete:
            self._fail(f"the connection was closed before the answer was complete{_because(exc)}")

    def forget(self) -> None:
        """Let go of why it failed: the error's traceback leads to whoever waited, and back here."""
        self._failure = None

    def _ends_with_connection(self) -> bool:
        names = {name for name, _ in self.headers}
        return not names & {b"content-length", b"transfer-encoding"}

    def _fail(self, message: str) -> None:
        self._failure = ConnectionFailed(message, sent=True)
        if self._waiter and not self._waiter.done():
            self._waiter.set_exception(self._failure)

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done() and self.head_complete:
            self._waiter.set_result(None)

    # -- httptools --------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self.complete:  # more than was asked for
            self.reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.head_complete:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self.complete:
            return
        self.status = self._parser.get_status_code()
        if self.status < 200:  # noqa: PLR2004 - an interim answer: the real one follows
            self.headers = []
            return
        self.head_complete = True
        self.reusable = self._parser.should_keep_alive()
        if self._headless:  # the parser would wait for a body that HEAD does not have
            self.complete = True
            self.reusable = False

    def on_body(self, body: bytes) -> None:
        if self.complete:
            return
        self.chunks.append(body)
        self._buffered += len(body)
        if self._buffered > _HIGH_WATER_BYTES and not self._paused:
            self._paused = True
            self.transport.pause_reading()

    def on_message_complete(self) -> None:
        if self.head_complete:
            self.complete = True


def _because(exc: BaseException | None) -> str:
    return f": {exc}" if exc else ""


async def _whole(connection: _Connection) -> Response:
    """The whole answer, when it is there."""
    parts: list[bytes] = []
    while True:
        while connection.chunks:
            parts.append(connection.next_chunk())
        if connection.complete:
            break
        await connection.progress()
    body = parts[0] if len(parts) == 1 else b"".join(parts)
    return Response(connection.status, connection.headers, body)


class Begun:
    """A request that was sent and whose answer is still to come; made by `Pool.begin`."""

    __slots__ = ("_connection", "_pool")

    def __init__(self, pool: Pool, connection: _Connection) -> None:
        self._pool = pool
        self._connection = connection

    async def response(self, timeout_s: float | None = None) -> Response:
        """Wait for the whole answer; raises as `Pool.request` does."""
        try:
            async with asyncio.timeout(timeout_s):
                return await _whole(self._connection)
        finally:
            self._pool.give_back(self._connection)


class Pool:
    """Keep-alive connections to one address.

    Args:
        address: ``HOST:PORT`` or ``unix:PATH``.
        max_connections: most requests at once; further ones wait for their turn.
        idle_s: an idle connection older than this is not used again. Keep it below the peer's
            own limit, or a request may meet a socket that is just being closed.
    """

    def __init__(self, address: str, *, max_connections: int = 64, idle_s: float = 4.0) -> None:
        self.address = address
        self._where = addresses.parse(address)
        self._idle_s = idle_s
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._slots = asyncio.Semaphore(max_connections)

    async def request(
        self,
        method: str,
        target: str,
        headers: Iterable[tuple[str, str]] = (),
        body: Buffer = b"",
        timeout_s: float | None = None,
    ) -> Response:
        """Send one request and wait for its whole answer.

        Raises:
            ConnectionFailed: no answer came.
            TimeoutError: not complete after ``timeout_s``.
        """
        async with asyncio.timeout(timeout_s), self._exchange(method, target, headers, body) as c:
            return await _whole(c)

    def begin(
        self, method: str, target: str, headers: Iterable[tuple[str, str]], body: Buffer
    ) -> Begun | None:
        """Send one request now, without waiting for the event loop; None if no connection is idle.

        It does not count towards ``max_connections``.
        """
        connection = self._reuse()
        if connection is None:
            return None
        self._busy.add(connection)
        connection.send(method, self._head(method, target, headers, len(body)), body)
        return Begun(self, connection)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        target: str,
        headers: Iterable[tuple[str, str]] = (),
        body: Buffer = b"",
    ) -> AsyncIterator[StreamedResponse]:
        """Send one request; the answer's head is there on entry, its body is read in pieces.

        Raises:
            ConnectionFailed: no answer came, or it broke off.
        """
        async with self._exchange(method, target, headers, body) as connection:
            while not connection.head_complete:
                await connection.progress()
            yield StreamedResponse(connection)

    def close(self) -> None:
        """Close every connection; requests under way fail."""
        for connection in (*self._idle, *self._busy):
            connection.close()
        self._idle.clear()

    @asynccontextmanager
    async def _exchange(
        self, method: str, target: str, headers: Iterable[tuple[str, str]], body: Buffer
    ) -> AsyncIterator[_Connection]:
        head = self._head(method, target, headers, len(body))
        async with self._slots:
            connection = self._reuse() or await self._connect()
            self._busy.add(connection)
            try:
                connection.send(method, head, body)
                yield connection
            finally:
                self.give_back(connection)

    def _head(
        self, method: str, target: str, headers: Iterable[tuple[str, str]], size: int
    ) -> bytes:
        lines = [f"{method} {target} HTTP/1.1\r\n"]
        named = False
        for name, value in headers:
            lines.append(f"{name}: {value}\r\n")
            named = named or name.lower() == "host"
        if not named:
            lines.append("host: localhost\r\n" if self._where.path else f"host: {self._where}\r\n")
        if size or method not in ("GET", "HEAD", "OPTIONS"):
            lines.append(f"content-length: {size}\r\n")
        lines.append("\r\n")
        return "".join(lines).encode("latin-1", "replace")

    def _reuse(self) -> _Connection | None:
        oldest = asyncio.get_running_loop().time() - self._idle_s
        while self._idle:
            connection = self._idle.pop()
            if connection.open and connection.used_at >= oldest:
                return connection
            connection.close()
        return None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        where = self._where
        try:
            if where.path:
                _, connection = await loop.create_unix_connection(
                    lambda: _Connection(loop), where.path
                )
            else:
                _, connection = await loop.create_connection(
                    lambda: _Connection(loop), where.host, where.port
                )
        except OSError as error:
            msg = f"cannot connect to {self.address}: {error.strerror or error}"
            raise ConnectionFailed(msg, sent=False) from error
        return connection

    def give_back(self, connection: _Connection) -> None:
        """Its request is over, well or not: keep it for the next one if it can be used again."""
        self._busy.discard(connection)
        if connection.open and connection.complete and connection.reusable:
            connection.used_at = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            connection.forget()
            with suppress(AttributeError):
                connection.close()
