"""A request on a connection of its own, whose response is written there as HTTP/1.1.

What an exchange needs of its connection is defined by `Link`; no connection is known here.
"""

from __future__ import annotations

import functools
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

from carpool.http.exchange import UNKNOWN_LENGTH, Exchange, encoded

if TYPE_CHECKING:
    import asyncio
    from collections import deque

    from carpool import errors
    from carpool.http.exchange import Body, Headers, Successor

__all__ = ["HttpExchange", "Link", "ServerState", "encode_answer"]

_STATUS_LINES = {s.value: b"HTTP/1.1 %d %s\r\n" % (s.value, s.phrase.encode()) for s in HTTPStatus}
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

    exchanges: deque[HttpExchange]

    @property
    def transport(self) -> asyncio.Transport:
        """Transport of the socket."""

    @property
    def server(self) -> ServerState:
        """State shared with other connections."""

    @property
    def peer(self) -> str:
        """``ip:port`` of the client; empty on a Unix socket."""

    def accept(self, exchange: HttpExchange) -> None:
        """Take a whole request."""

    def invite(self) -> None:
        """Send 100 Continue to a client that waits for it, once nothing else is unanswered."""

    def write(self, data: bytes) -> None:
        """Send a part of the first exchange's response."""

    def finish(self, data: bytes) -> None:
        """Send the end of the first exchange's response and continue with the next exchange."""

    def abort(self) -> None:
        """Close at once."""

    def switch(self, exchange: HttpExchange, answer: bytes, protocol: Successor) -> None:
        """Respond to an exchange and pass the socket to another protocol."""

    async def writable(self) -> None:
        """Wait until the client has taken all data."""


class HttpExchange(Exchange):
    """A request read from a connection.

    Attributes:
        connection: Where the response is written; set by the reader of the connection.
    """

    __slots__ = ("_with_body", "connection")

    connection: Link
    _with_body: bool  # of a streamed response, once it was started

    @property
    def peer(self) -> str:
        """``ip:port`` of the client; empty on a Unix socket."""
        return self.connection.peer

    def _respond(
        self, status: int, body: Body, content_type: str, headers: Headers, length: int | None
    ) -> None:
        if self.added:
            headers = encoded(headers) + encoded(self.added)
        size = len(body)
        if self.method == "HEAD" or status in _NO_BODY:
            length_sent = size if length is None or status in _NO_BODY else length
            known = None if length_sent == UNKNOWN_LENGTH else length_sent
            self._finish(self._head(status, content_type, headers, known))
        elif size >= _JOIN_BELOW_BYTES:
            self._send(self._head(status, content_type, headers, size))
            self._finish(bytes(body))
        elif not self.keep_alive:
            self._finish(self._head(status, content_type, headers, size) + body)
        elif self.gone:
            self._finish(b"")
        else:  # as `_head` and `_finish` would, in one step: this is nearly every answer
            self.answered = True
            self.on_gone = None
            connection = self.connection
            first = _first_lines(status, content_type, connection.server.date)
            lines = headers if type(headers) is bytes else encoded(headers)
            data = b"%b%bcontent-length: %d\r\n\r\n" % (first, lines, size) + body
            if connection.exchanges[0] is self:
                connection.finish(data)
            else:
                self._hold(data)

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
        self.connection.abort()

    def switch(self, answer: bytes, protocol: Successor) -> None:
        """Send ``answer`` unchanged and pass the connection to another protocol.

        Raises:
            BadRequest: other requests were sent on it as well.
            Overloaded: the server is closing.
        """
        self.connection.switch(self, answer, protocol)

    async def drained(self) -> None:
        """Wait until the client has read enough of a streamed response for more to be sent."""
        await self.connection.writable()

    def _head(
        self,
        status: int,
        content_type: str | None,
        headers: Headers,
        size: int | None,
    ) -> bytes:
        first = _first_lines(status, content_type, self.connection.server.date)
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
        if self.connection.exchanges[0] is self:
            self.connection.write(data)
        else:
            self._hold(data)

    def _finish(self, data: bytes) -> None:
        self.answered = True
        self.on_gone = None
        if self.gone:
            return
        connection = self.connection
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
        self.connection.server.held_bytes += size_bytes
