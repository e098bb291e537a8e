"""One socket of the server edge: parsing, the order of pipelined answers, limits.

Rules: there is no timer per connection (`expire` is called from one sweep); a client that closes
its side has gone, half-closed or not; a request whose framing is ambiguous is refused and its
connection closed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Protocol

import httptools

from carpool import errors
from carpool.http.exchange import Exchange

__all__ = ["Connection", "Limits"]

_PIPELINE = 64  # requests read ahead on one connection before reading pauses
_LINGER_S = 2.0  # a refused client may still be sending; closing at once could destroy the answer


@dataclass(frozen=True, slots=True)
class Limits:
    """What one server edge accepts.

    Attributes:
        head_bytes: largest request line and headers together (431 beyond).
        body_bytes: largest request body (413 beyond).
        idle_s: how long a connection may stay open between requests.
        read_s: how long a request may take to arrive, and a client to read its answer.
        connections: most connections at once (503 beyond).
    """

    head_bytes: int = 64 * 1024
    body_bytes: int = 64 * 1024 * 1024
    idle_s: float = 75.0
    read_s: float = 30.0
    connections: int = 4096


class Owner(Protocol):
    """What a connection needs of the server that it belongs to."""

    limits: Limits
    loop: asyncio.AbstractEventLoop
    connections: set[Connection]
    closing: bool
    date: bytes

    def now(self) -> float:
        """Event-loop time, seconds."""

    def dispatch(self, exchange: Exchange) -> None:
        """Hand a whole request to the application."""

    def noticed(self) -> None:
        """A connection became idle or went away."""


class Connection(asyncio.Protocol):
    """One socket: parsing, order of pipelined answers, limits."""

    __slots__ = (
        "_body",
        "_body_bytes",
        "_closing",
        "_exchange",
        "_head_bytes",
        "_headers",
        "_headers_done",
        "_limits",
        "_lingering",
        "_parser",
        "_paused",
        "_server",
        "_target",
        "_writable",
        "active_since",
        "exchanges",
        "transport",
    )

    transport: asyncio.Transport

    def __init__(self, server: Owner) -> None:
        self._server = server
        self._limits = server.limits
        self._parser = httptools.HttpRequestParser(self)
        self._closing = False
        self._lingering = False
        self._paused = False
        self._writable: asyncio.Future[None] | None = None
        self.exchanges: deque[Exchange] = deque()
        self.active_since = server.now()
        self._reset()

    def _reset(self) -> None:
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._headers_done = False
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._exchange: Exchange | None = None

    @property
    def date(self) -> bytes:
        """The Date header line of answers."""
        return self._server.date

    @property
    def last_answer(self) -> bool:
        """Whether the answer being written is the last one of this connection."""
        return self._server.closing and len(self.exchanges) <= 1

    # -- asyncio ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected."""
        self.transport = transport  # type: ignore[assignment]
        if len(self._server.connections) >= self._limits.connections:
            self._refuse(503, "too many connections")
        else:
            self._server.connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Feed the parser; refuse what it cannot read."""
        if self._closing:
            return
        if not self.exchanges and self._exchange is None and not self._head_bytes:
            self.active_since = self._server.now()
        if not self._headers_done:
            self._head_bytes += len(data)  # corrected when the head is complete
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._closing = True  # we stay with HTTP/1.1: answer, then close
            self._last_answer_closes()
        except httptools.HttpParserError as error:
            cause = error.__context__
            if isinstance(cause, _Refused):
                self._refuse(cause.status, str(cause))
            else:
                self._refuse(400, f"not an HTTP/1.1 request: {error}")
        else:
            if not self._headers_done and self._head_bytes > self._limits.head_bytes:
                self._refuse(431, f"headers are larger than {self._limits.head_bytes} bytes")

    def eof_received(self) -> bool:
        """The client closed its side: it is not waiting any more."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel what was asked and not answered."""
        del exc
        self._closing = True
        self._server.connections.discard(self)
        if self._writable and not self._writable.done():
            self._writable.set_result(None)
        while self.exchanges:
            exchange = self.exchanges.popleft()
            exchange.gone = True
            if exchange.on_gone:
                exchange.on_gone()
        self._server.noticed()

    def pause_writing(self) -> None:
        """The client reads more slowly than we write."""
        self._writable = self._server.loop.create_future()
        self.active_since = self._server.now()

    def resume_writing(self) -> None:
        """The client has caught up."""
        if self._writable and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    async def writable(self) -> None:
        """Wait until the client has caught up."""
        if self._writable:
            await self._writable

    # -- httptools --------------------------------------------------------------------------

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; trailers are read and dropped."""
        if not self._headers_done:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head is whole: check its framing and sizes."""
        self._headers_done = True
        parser, headers = self._parser, self._headers
        if self._head_bytes > self._limits.head_bytes:  # body bytes of this read count too: look
            size = sum([len(name) + len(value) + 4 for name, value in headers]) + len(self._target)
            if size > self._limits.head_bytes:
                raise _Refused(431, f"headers are larger than {self._limits.head_bytes} bytes")
        exchange = Exchange(
            self, parser.get_method().decode("latin-1"), self._target.decode("latin-1"), headers
        )
        exchange.keep_alive = parser.should_keep_alive()
        self._exchange = exchange
        for name, value in headers:
            if name == b"transfer-encoding":
                self._check_transfer_encoding(value)
            elif name == b"content-length" and int(value) > self._limits.body_bytes:
                raise _Refused(413, self._too_large())
            elif name == b"expect" and value.lower() == b"100-continue" and not self.exchanges:
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._body_bytes += len(body)
        if self._body_bytes > self._limits.body_bytes:
            raise _Refused(413, self._too_large())
        self._body.append(body)

    def on_message_complete(self) -> None:
        """The request is whole: hand it over."""
        exchange = self._exchange
        if exchange is None:
            return
        body = self._body
        exchange.body = body[0] if len(body) == 1 else b"".join(body)
        exchange.received = self._server.now()
        if not exchange.keep_alive:
            self._closing = True
        self._reset()
        self.exchanges.append(exchange)
        if len(self.exchanges) >= _PIPELINE and not self._paused:
            self._paused = True
            self.transport.pause_reading()
        self._server.dispatch(exchange)

    def _check_transfer_encoding(self, value: bytes) -> None:
        both = any(name == b"content-length" for name, _ in self._headers)
        if both or self._parser.get_http_version() != "1.1":
            raise _Refused(400, "transfer-encoding beside content-length, or before HTTP/1.1")
        if value.strip().lower() != b"chunked":
            raise _Refused(501, "the only transfer-encoding understood is 'chunked'")

    def _too_large(self) -> str:
        return f"the body is larger than {self._limits.body_bytes} bytes"

    # -- answers ----------------------------------------------------------------------------

    def advance(self) -> None:
        """The first unanswered exchange may have been answered: send what can go, in order."""
        exchanges = self.exchanges
        while exchanges and exchanges[0].answered:
            done = exchanges.popleft()
            for data in done.release_held():
                self.transport.write(data)
            if not done.keep_alive:
                self._leave()
                return
            if exchanges:
                for data in exchanges[0].release_held():
                    self.transport.write(data)
        if self._paused and len(exchanges) < _PIPELINE // 2:
            self._paused = False
            self.transport.resume_reading()
        if not exchanges:
            self.active_since = self._server.now()
            if self._server.closing:
                self.transport.close()
            self._server.noticed()

    def close_when_idle(self) -> None:
        """Close now if nothing is unanswered; else the last answer says that it is the last."""
        if self.exchanges:
            self._last_answer_closes()
        elif not self._head_bytes:
            self.transport.close()

    def _last_answer_closes(self) -> None:
        if self.exchanges:
            self.exchanges[-1].keep_alive = False

    def _leave(self) -> None:
        self.active_since = self._server.now()
        if self._lingering and self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    def abort(self) -> None:
        """Close at once, answered or not."""
        self._closing = True
        self.transport.abort()

    def expire(self, now: float) -> None:
        """Enforce the time limits; called about once a second."""
        limits = self._limits
        if self._writable or self._lingering:
            patience_s = _LINGER_S if self._lingering else limits.read_s
            if now - self.active_since > patience_s:
                self.abort()
        elif self._head_bytes or self._exchange:
            if now - self.active_since > limits.read_s:
                self._refuse(408, f"the request did not arrive within {limits.read_s:g} s")
        elif not self.exchanges and now - self.active_since > limits.idle_s:
            self.transport.close()

    def _refuse(self, status: int, reason: str) -> None:
        """Answer what cannot be read as a request, then close: its framing is lost."""
        self._closing = self._lingering = True
        exchange = self._exchange or Exchange(self, "GET", "", [])
        self._exchange = None
        exchange.keep_alive = False
        self.exchanges.append(exchange)
        exchange.reply(status, errors.body(reason))


class _Refused(Exception):
    """A request the edge will not read further."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
