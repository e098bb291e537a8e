"""The client edge: keep-alive connections to one address, one request at a time on each.

Responses are whole (`Pool.request`) or streamed with back-pressure (`Pool.stream`). Nothing is ever
sent twice: only the caller knows whether a request may be repeated. Cancelling the calling task
closes the connection, which is how the peer learns of it.
"""

from __future__ import annotations

import asyncio
import io
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from carpool import address as addresses
from carpool.http.client_connection import AnswerTooLarge, ClientConnection, ConnectionFailed
from carpool.http.exchange import UNKNOWN_LENGTH

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from carpool.http.exchange import Headers
    from carpool.wire import Buffer

    Request = tuple[str, str, Headers, Buffer]

__all__ = [
    "ANSWER_BYTES",
    "AnswerTooLarge",
    "ConnectionFailed",
    "PendingRequest",
    "Pool",
    "Response",
    "StreamedResponse",
]

ANSWER_BYTES = 64 * 1024 * 1024


class Response(NamedTuple):
    """A whole response; header names in lower case."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def header(self, name: bytes) -> bytes | None:
        """Return the last value of the header ``name`` (lower case), or None."""
        for key, value in reversed(self.headers):
            if key == name:
                return value
        return None

    @property
    def told_length(self) -> int:
        """Body length stated in the header, as `Exchange.reply` takes it in responses to HEAD."""
        length = self.header(b"content-length")
        return int(length) if length else UNKNOWN_LENGTH


class StreamedResponse:
    """A response whose body is read as it arrives."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self.status = connection.status
        self.headers = connection.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body in the pieces in which it arrives."""
        connection = self._connection
        while True:
            while connection.chunks:
                yield connection.next_chunk()
            if connection.complete:
                return
            await connection.progress()

    def header(self, name: bytes) -> bytes | None:
        """Return the last value of the header ``name`` (lower case), or None."""
        return next((value for key, value in reversed(self.headers) if key == name), None)


async def _whole(connection: ClientConnection, answer_bytes: int) -> Response:
    """Wait for the whole response and return it."""
    body, pieces = b"", None
    room = answer_bytes
    while True:
        while connection.chunks:
            chunk = connection.next_chunk()
            room -= len(chunk)
            if pieces is None and not body:
                body = chunk
                continue
            if pieces is None:
                pieces = io.BytesIO()  # unlike a list to join, it never holds everything twice
                pieces.write(body)
            pieces.write(chunk)
        if room < 0:
            msg = f"the answer is larger than {answer_bytes} bytes"
            raise AnswerTooLarge(msg)
        if connection.complete:
            break
        await connection.progress()
    if pieces is not None:
        body = pieces.getvalue()
    return Response(connection.status, connection.headers, body)


class PendingRequest:
    """A request whose response is pending; created by `Pool.begin`."""

    __slots__ = ("_pool", "_sent")

    def __init__(self, pool: Pool, sent: ClientConnection | Request) -> None:
        self._pool = pool
        self._sent = sent  # on which connection, or what has still to be sent

    async def response(self, timeout_s: float | None = None) -> Response:
        """Wait for the whole response; raises as `Pool.request` does."""
        pool, sent = self._pool, self._sent
        if isinstance(sent, tuple):
            return await pool.request(*sent, timeout_s=timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                return await _whole(sent, pool.answer_bytes)
        finally:
            pool.give_back(sent)


class Pool:
    """Keep-alive connections to one address.

    Args:
        address: ``HOST:PORT`` or ``unix:PATH``.
        max_connections: Maximum number of concurrent requests; further ones wait.
        idle_s: Idle connections older than this are not reused. Keep it below the peer's own
            limit, or a request may meet a socket that is just being closed.
        answer_bytes: Largest body of a response that is read as a whole.
        connect_s: Time limit for connecting; None for the system's own.
    """

    def __init__(
        self,
        address: str,
        *,
        max_connections: int = 64,
        idle_s: float = 4.0,
        answer_bytes: int = ANSWER_BYTES,
        connect_s: float | None = None,
    ) -> None:
        self.address = address
        self._connect_s = connect_s
        self.answer_bytes = answer_bytes
        self._where = addresses.parse(address)
        host = "localhost" if self._where.path else str(self._where)
        self._host = f"host: {host}\r\n".encode("latin-1", "replace")
        self._idle_s = idle_s
        self._idle: list[ClientConnection] = []
        self._busy: set[ClientConnection] = set()
        self._slots = asyncio.Semaphore(max_connections)

    async def request(
        self,
        method: str,
        target: str,
        headers: Headers = (),
        body: Buffer = b"",
        timeout_s: float | None = None,
    ) -> Response:
        """Send one request and wait for the whole response.

        Headers given as bytes must not include ``Host``, and each line must end with a line break.

        Raises:
            ConnectionFailed: no response arrived.
            AnswerTooLarge: the response is larger than the pool allows.
            TimeoutError: not complete after ``timeout_s``.
        """
        async with asyncio.timeout(timeout_s), self._exchange(method, target, headers, body) as c:
            return await _whole(c, self.answer_bytes)

    def begin(self, method: str, target: str, headers: Headers, body: Buffer) -> PendingRequest:
        """Send one request now, without waiting for the event loop, if a connection is idle.

        It then does not count towards ``max_connections``. Otherwise it is sent when its response
        is awaited.
        """
        connection = self._reuse()
        if connection is None:
            return PendingRequest(self, (method, target, headers, body))
        self._busy.add(connection)
        connection.send(method, self._head(method, target, headers, len(body)), body)
        return PendingRequest(self, connection)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        target: str,
        headers: Headers = (),
        body: Buffer = b"",
    ) -> AsyncIterator[StreamedResponse]:
        """Send one request; the response's head is available on entry, its body is read in pieces.

        Raises:
            ConnectionFailed: no response arrived, or it was cut off.
        """
        async with self._exchange(method, target, headers, body) as connection:
            while not connection.head_complete:
                await connection.progress()
            yield StreamedResponse(connection)

    def give_back(self, connection: ClientConnection) -> None:
        """Return a connection after its request, for reuse if possible."""
        self._busy.discard(connection)
        if connection.open and connection.complete and connection.reusable:
            connection.used_at = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            connection.forget()
            connection.close()

    def close(self) -> None:
        """Close all connections; pending requests fail."""
        for connection in (*self._idle, *self._busy):
            connection.close()
        self._idle.clear()

    @asynccontextmanager
    async def _exchange(
        self, method: str, target: str, headers: Headers, body: Buffer
    ) -> AsyncIterator[ClientConnection]:
        head = self._head(method, target, headers, len(body))
        async with self._slots:
            connection = self._reuse() or await self._connect()
            self._busy.add(connection)
            try:
                connection.send(method, head, body)
                yield connection
            finally:
                self.give_back(connection)

    def _head(self, method: str, target: str, headers: Headers, size: int) -> bytes:
        lines = [f"{method} {target} HTTP/1.1\r\n".encode("latin-1", "replace")]
        if isinstance(headers, bytes):
            lines += headers, self._host
        else:
            headers = tuple(headers)
            names = {name.lower() for name, _ in headers}
            text = "".join([f"{name}: {value}\r\n" for name, value in headers])
            lines += text.encode("latin-1", "replace"), b"" if "host" in names else self._host
        if size or method not in ("GET", "HEAD", "OPTIONS"):
            lines.append(b"content-length: %d\r\n" % size)
        lines.append(b"\r\n")
        return b"".join(lines)

    def _reuse(self) -> ClientConnection | None:
        oldest = asyncio.get_running_loop().time() - self._idle_s
        while self._idle:
            connection = self._idle.pop()
            if connection.open and connection.used_at >= oldest:
                return connection
            connection.close()
        return None

    async def _connect(self) -> ClientConnection:
        loop = asyncio.get_running_loop()
        where = self._where
        try:
            if where.path:
                made = loop.create_unix_connection(lambda: ClientConnection(loop), where.path)
            else:
                made = loop.create_connection(
                    lambda: ClientConnection(loop), where.host, where.port
                )
            # Not wait_for: until Python 3.12 that loses a cancellation as the connection is made.
            async with asyncio.timeout(self._connect_s):
                _, connection = await made
        except OSError as error:  # a TimeoutError is one
            why = error.strerror or str(error) or f"not within {self._connect_s:g} s"
            msg = f"cannot connect to {self.address}: {why}"
            raise ConnectionFailed(msg, sent=False) from error
        return connection
