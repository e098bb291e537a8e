"""A request and its response, as an application sees them.

What an exchange needs of its connection is defined by `Link`; no connection is known here.
"""

from __future__ import annotations

import functools
import logging
import math
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote

from carpool import errors

if TYPE_CHECKING:
    import asyncio
    from collections import deque
    from collections.abc import Callable, Iterable

    Successor = Callable[[Any, asyncio.Transport], Any]  # of server and socket, a connection
    Headers = Iterable[tuple[str, str]] | bytes  # or their lines as sent, each with its end

__all__ = ["UNKNOWN_LENGTH", "Exchange", "Link", "ServerState", "encode_answer", "encoded"]

log = logging.getLogger(__name__)

_STATUS_LINES = {s.value: b"HTTP/1.1 %d %s\r\n" % (s.value, s.phrase.encode()) for s in HTTPStatus}
UNKNOWN_LENGTH = -1
_NO_BODY = frozenset((204, 304))
_JOIN_BELOW_BYTES = 64 * 1024  # above this a copy costs more than a second write


@functools.lru_cache(maxsize=64)  # a type may be a caller's, and of 64 KiB
def _first_lines(status: int, content_type: str | None, date: bytes) -> bytes:
    """Return status line, content type and date; cached, as an application repeats a few."""
    line = _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
    if not content_type:
        return line + date
    value = content_type.encode("latin-1", "replace")
    return b"%bcontent-type: %b\r\n%b" % (line, value, date)


def encode_answer(answer: errors.Answer, date: bytes) -> bytes:
    """Return ``answer`` as bytes, for a connection that stays open."""
    first = _first_lines(answer.status, "application/json", date)
    return b"%b%bcontent-length: %d\r\n\r\n%b" % (
        first,
        encoded(answer.headers),
        len(answer.body),
        answer.body,
    )


def encoded(headers: Headers) -> bytes:
    """Return headers in the form in which they are sent."""
    if isinstance(headers, bytes):
        return headers
    lines = [f"{name}: {value}\r\n".encode("latin-1", "replace") for name, value in headers]
    return b"".join(lines)


class ServerState(Protocol):
    """State shared by all connections of a server.

    Attributes:
        date: The ``Date`` header, as sent.
        held_bytes: Memory held for clients.
    """

    date: bytes
    held_bytes: int


class Link(Protocol):
    """The connection of exchanges; `exchanges` are the unanswered ones, in order."""

    exchanges: deque[Exchange]

    @property
    def transport(self) -> asyncio.Transport:
        """Transport of the socket."""

    @property
    def server(self) -> ServerState:
        """State shared with other connections."""

    @property
    def peer(self) -> str:
        """``ip:port`` of the client; empty on a Unix socket."""

    def accept(self, exchange: Exchange) -> None:
        """Take a whole request."""

    def invite(self) -> None:
        """Send 100 Continue to a client that waits for it before it sends its body."""

    def write(self, data: bytes) -> None:
        """Send a part of the first exchange's response."""

    def finish(self, data: bytes) -> None:
        """Send the end of the first exchange's response and continue with the next exchange."""

    def abort(self) -> None:
        """Close at once."""

    def switch(self, exchange: Exchange, answer: bytes, protocol: Successor) -> None:
        """Respond to an exchange and pass the socket to another protocol."""

    async def writable(self) -> None:
        """Wait until the client has taken all data."""


class Exchange:
    """A request and its response.

    Attributes:
        method, target: As sent; ``target`` is path and query.
        headers: Names in lower case, in order of arrival.
        body: The whole decoded body.
        received: Event-loop time at which the request was complete, in seconds.
        on_gone: Called once if the client leaves before the response is complete.
        gone: Whether the client has left; responses are then dropped.
        keep_alive: Whether the connection stays open after the response.
        chunked: Whether the client supports chunked responses; if not, closing the connection
            ends the response.
        added: Headers added to any response.
        answered: Whether the response is complete.
        held_bytes: Approximate memory that the server holds for it.
        timeout_s: Limit from its arrival on, where the protocol itself has one.
    """

    __slots__ = (
        "_connection",
        "_held",
        "_streaming",
        "_with_body",
        "added",
        "answered",
        "body",
        "chunked",
        "gone",
        "headers",
        "held_bytes",
        "keep_alive",
        "method",
        "on_gone",
        "received",
        "target",
    )

    timeout_s: float = math.inf  # HTTP has none

    def __init__(
        self,
        connection: Link,
        method: str,
        target: str,
        headers: tuple[tuple[bytes, bytes], ...],
    ) -> None:
        self._connection = connection
        self._held: list[bytes] = []
        self._streaming = False
        self._with_body = True
        self.added: tuple[tuple[str, str], ...] = ()
        self.method = method
        self.target = target
        self.headers = headers
        self.body: bytes = b""
        self.keep_alive = True
        self.chunked = True
        self.held_bytes = 0
        self.received = 0.0
        self.on_gone: Callable[[], object] | None = None
        self.gone = False
        self.answered = False

    @property
    def path(self) -> str:
        """Percent-decoded path of the target, without the query."""
        return unquote(self.target.partition("?")[0])

    @property
    def query(self) -> str:
        """Query of the target as sent, without the question mark."""
        return self.target.partition("?")[2]

    @property
    def peer(self) -> str:
        """``ip:port`` of the client; empty on a Unix socket."""
        return self._connection.peer

    def header(self, name: bytes) -> bytes | None:
        """Return the last value of the header ``name`` (lower case), or None."""
        for key, value in reversed(self.headers):
            if key == name:
                return value
        return None

    def reply(
        self,
        status: int,
        body: bytes | memoryview = b"",
        content_type: str = "application/json",
        headers: Headers = (),
        *,
        length: int | None = None,
    ) -> None:
        """Send a whole response; do nothing if the client has left or a response was sent.

        Args:
            status: Status of the response.
            body: Its body; only the length is sent in response to HEAD.
            content_type: Content type of the body.
            headers: Further headers.
            length: Length to send in response to HEAD instead, if the body is not known here; may
                be ``UNKNOWN_LENGTH``.
        """
        if self.answered or self._streaming:
            return
        if self.added:
            headers = encoded(headers) + encoded(self.added)
        size = len(body)
        if self.method == "HEAD" or status in _NO_BODY:
            told = size if length is None or status in _NO_BODY else length
            known = None if told == UNKNOWN_LENGTH else told
            self._finish(self._head(status, content_type, headers, known))
        elif size >= _JOIN_BELOW_BYTES:
            self._send(self._head(status, content_type, headers, size))
            self._finish(bytes(body))
        elif not self.keep_alive:
            self._finish(self._head(status, content_type, headers, size) + body)
        else:  # as `_head` would, in one step: this is nearly every answer
            first = _first_lines(status, content_type, self._connection.server.date)
            lines = encoded(headers) if headers else b""
            self._finish(b"%b%bcontent-length: %d\r\n\r\n" % (first, lines, size) + body)

    def fail(self, error: errors.CarpoolError, headers: Iterable[tuple[str, str]] = ()) -> None:
        """Report ``error`` with its status, its message and, if known, when to retry."""
        status, body, own = errors.answer(error)
        self.reply(status, body, headers=(*headers, *own))

    def start(self, status: int, headers: Headers = ()) -> None:
        """Start a streamed response; ``write`` its chunks, then ``end`` it."""
        self._streaming = True
        self._with_body = self.method != "HEAD" and status not in _NO_BODY
        self._send(self._head(status, None, encoded(headers) + encoded(self.added), None))

    def write(self, chunk: bytes) -> None:
        """Send a part of a streamed response now."""
        if chunk and self._with_body:
            self._send(b"%x\r\n%b\r\n" % (len(chunk), chunk) if self.chunked else chunk)

    def end(self) -> None:
        """Complete a streamed response."""
        if not self.answered:
            self._finish(b"0\r\n\r\n" if self.chunked and self._with_body else b"")

    def abort(self) -> None:
        """Close the connection before the response is complete, so that the client sees the cut."""
        self._connection.abort()

    def switch(self, answer: bytes, protocol: Successor) -> None:
        """Send ``answer`` unchanged and pass the connection to another protocol.

        Raises:
            BadRequest: other requests were sent on it as well.
            Overloaded: the server is closing.
        """
        self._connection.switch(self, answer, protocol)

    def tell_gone(self) -> None:
        """Tell the application, once, that the client has left; its errors are logged."""
        on_gone, self.on_gone = self.on_gone, None  # it mostly refers to its exchange
        if on_gone:
            try:
                on_gone()
            except Exception:
                log.exception("cancelling %s %s failed", self.method, self.target)

    async def drained(self) -> None:
        """Wait until the client has read enough of a streamed response for more to be sent."""
        await self._connection.writable()

    def _head(
        self,
        status: int,
        content_type: str | None,
        headers: Headers,
        size: int | None,
    ) -> bytes:
        first = _first_lines(status, content_type, self._connection.server.date)
        parts = [first, encoded(headers)]
        if size is not None and status not in _NO_BODY:
            parts.append(b"content-length: %d\r\n" % size)
        elif size is None and self.chunked and status not in _NO_BODY:
            parts.append(b"transfer-encoding: chunked\r\n")
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
        parts.append(b"\r\n")
        return b"".join(parts)

    def _send(self, data: bytes) -> None:
        if self.gone:
            return
        if self._connection.exchanges[0] is self:
            self._connection.write(data)
        else:
            self._hold(data)

    def _finish(self, data: bytes) -> None:
        self.answered = True
        self.on_gone = None
        if self.gone:
            return
        connection = self._connection
        if connection.exchanges[0] is self:
            connection.finish(data)
        else:
            self._hold(data)

    def _hold(self, data: bytes) -> None:
        """Keep data that must not be sent before the responses to earlier requests."""
        self._held.append(data)
        self._count(len(data))

    def release_held(self) -> list[bytes]:
        """Return the data held while earlier requests on the connection were unanswered."""
        held, self._held = self._held, []
        self._count(-sum(map(len, held)))
        return held

    def _count(self, size_bytes: int) -> None:
        self.held_bytes += size_bytes
        self._connection.server.held_bytes += size_bytes
