"""The client edge: keep-alive connections to one address, one request at a time on each.

Responses are whole (`Pool.request`) or streamed with back-pressure (`Pool.stream`). Nothing is ever
sent twice: only the caller knows whether a request may be repeated. Cancelling the calling task, or
giving up a pending request, closes the connection, which is how the peer learns of it.
"""

from __future__ import annotations

import asyncio
import io
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from carpool import address as addresses
from carpool.http.client_connection import AnswerTooLarge, ClientConnection, ConnectionFailed
from carpool.http.exchange import UNKNOWN_LENGTH
from carpool.task_set import TaskSet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

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


class _Collector:
    """Collects the body of a response as it arrives."""

    __slots__ = ("_body", "_largest_bytes", "_left_bytes", "_pieces")

    def __init__(self, largest_bytes: int) -> None:
        self._largest_bytes = self._left_bytes = largest_bytes
        self._body = b""
        self._pieces: io.BytesIO | None = None  # unlike a list to join, it holds nothing twice

    def take(self, connection: ClientConnection) -> Response | None:
        """Take what has arrived; return the response once it is whole.

        Raises:
            AnswerTooLarge: it is larger than allowed.
        """
        while connection.chunks:
            self._add(connection.next_chunk())
        if self._left_bytes < 0:
            msg = f"the answer is larger than {self._largest_bytes} bytes"
            raise AnswerTooLarge(msg)
        if not connection.complete:
            return None
        body = self._pieces.getvalue() if self._pieces else self._body
        return Response(connection.status, connection.headers, body)

    def _add(self, chunk: bytes) -> None:
        self._left_bytes -= len(chunk)
        if self._pieces is None and not self._body:
            self._body = chunk
            return
        if self._pieces is None:
            self._pieces = io.BytesIO()
            self._pieces.write(self._body)
        self._pieces.write(chunk)


async def _whole(connection: ClientConnection, answer_bytes: int) -> Response:
    """Wait for the whole response to a request that was just sent, and return it."""
    collector, response = _Collector(answer_bytes), None
    while response is None:
        await connection.progress()
        response = collector.take(connection)
    return response


def _one_chunk(body: Buffer) -> bytes:
    """Return a body as a chunk, or none if it is empty, and the end of chunks."""
    return b"".join((b"%x\r\n" % len(body), body, b"\r\n0\r\n\r\n")) if body else b"0\r\n\r\n"


class PendingRequest:
    """A request whose response is pending; created by `Pool.begin`.

    The response is reported (`then`), which takes no task if the request has been sent.
    """

    __slots__ = ("_collector", "_done", "_pool", "_sent", "_task")

    def __init__(self, pool: Pool, sent: ClientConnection | Request) -> None:
        self._pool = pool
        self._sent = sent  # on which connection, or what has still to be sent
        self._done: Callable[[Response | Exception], object] | None = None
        self._task: asyncio.Task[None] | None = None

    def then(self, done: Callable[[Response | Exception], object]) -> None:
        """Call ``done`` with the response, or with an error as of `Pool.request`.

        It is called once, in a later iteration of the event loop; with `TimeoutError` after
        `give_up`.
        """
        self._done = done
        if isinstance(self._sent, tuple):
            self._task = self._pool.tasks.start(self._request(*self._sent))
        else:
            self._collector = _Collector(self._pool.answer_bytes)
            self._sent.on_progress = self._progress
            self._progress()

    def give_up(self) -> None:
        """Stop waiting, and close the connection."""
        task, self._task = self._task, None  # a cancelled task refers to this: break the cycle
        if task:
            task.cancel()
        self._tell(TimeoutError())

    async def _request(self, method: str, target: str, headers: Headers, body: Buffer) -> None:
        try:
            response = await self._pool.request(method, target, headers, body)
        except Exception as error:  # noqa: BLE001 - the sender gets it
            self._report(error)
        else:
            self._report(response)

    def _report(self, outcome: Response | Exception) -> None:
        """Report at once: a task has an iteration of its own."""
        if done := self._taken():
            done(outcome)

    def _progress(self) -> None:
        """Take what has arrived of the response, or why no more will."""
        assert isinstance(self._sent, ClientConnection)  # noqa: S101 - it calls this
        outcome: Response | Exception | None = self._sent.failure
        if outcome is None:
            try:
                outcome = self._collector.take(self._sent)
            except AnswerTooLarge as error:
                self._tell(error)
                return
        if outcome is not None:
            self._tell(outcome)

    def _tell(self, outcome: Response | Exception) -> None:
        """Report in the next iteration, as the connection or a caller is in the middle of its work.

        The connection is given back now.
        """
        done = self._taken()
        if done is None:
            return
        if isinstance(self._sent, ClientConnection):
            self._sent.on_progress = None
            self._pool.give_back(self._sent)
        asyncio.get_running_loop().call_soon(done, outcome)

    def _taken(self) -> Callable[[Response | Exception], object] | None:
        """Return what is to be called with the outcome, once; None if it has been returned."""
        done, self._done = self._done, None
        return done


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
        self.tasks = TaskSet()  # of requests that wait for a connection

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

        It then does not count towards ``max_connections``. Otherwise it is sent by a task that
        `PendingRequest.then` starts.
        """
        connection = self._reuse()
        if connection is None:
            return PendingRequest(self, (method, target, headers, body))
        self._busy.add(connection)
        head, body = self._framed(method, target, headers, body)
        connection.send(method, head, body)
        return PendingRequest(self, connection)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        target: str,
        headers: Headers = (),
        body: Buffer = b"",
        *,
        chunked: bool = False,
    ) -> AsyncIterator[StreamedResponse]:
        """Send one request; the response's head is available on entry, its body is read in pieces.

        Args:
            method: HTTP method.
            target: request target, such as ``/path?query``.
            headers: headers of the request.
            body: body of the request.
            chunked: Send the body with ``transfer-encoding: chunked``, as one chunk.

        Raises:
            ConnectionFailed: no response arrived, or it was cut off.
        """
        async with self._exchange(method, target, headers, body, chunked=chunked) as connection:
            while not connection.head_complete:
                await connection.progress()
            yield StreamedResponse(connection)

    def give_back(self, connection: ClientConnection) -> None:
        """Return a connection after its request, for reuse if possible.

        One with unread parts of a response may be paused, and would not read the next.
        """
        self._busy.discard(connection)
        read = connection.complete and not connection.chunks
        if connection.open and read and connection.reusable:
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
        self, method: str, target: str, headers: Headers, body: Buffer, *, chunked: bool = False
    ) -> AsyncIterator[ClientConnection]:
        head, body = self._framed(method, target, headers, body, chunked=chunked)
        async with self._slots:
            connection = self._reuse() or await self._connect()
            self._busy.add(connection)
            try:
                connection.send(method, head, body)
                yield connection
            finally:
                self.give_back(connection)

    def _framed(
        self, method: str, target: str, headers: Headers, body: Buffer, *, chunked: bool = False
    ) -> tuple[bytes, Buffer]:
        """Return the head and the body of a request as they are sent."""
        lines = headers + self._host if isinstance(headers, bytes) else self._lines(headers)
        framing = b""
        if chunked:
            framing, body = b"transfer-encoding: chunked\r\n", _one_chunk(body)
        elif body or method not in ("GET", "HEAD", "OPTIONS"):
            framing = b"content-length: %d\r\n" % len(body)
        start = f"{method} {target} HTTP/1.1\r\n".encode("latin-1", "replace")
        return b"".join((start, lines, framing, b"\r\n")), body

    def _lines(self, headers: Iterable[tuple[str, str]]) -> bytes:
        """Return the lines of headers, with the peer's address if they name no host."""
        headers = tuple(headers)
        names = {name.lower() for name, _ in headers}
        text = "".join([f"{name}: {value}\r\n" for name, value in headers])
        lines = text.encode("latin-1", "replace")
        return lines if "host" in names else lines + self._host

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
