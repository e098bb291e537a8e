"""Turns the bytes of one connection into whole requests: parsing, framing, sizes.

Rules: ambiguous input is refused and never repaired, as another server may repair it in another
way (RFC 9112, section 11.2); how the bytes were split into reads does not change the
result; nothing grows without a limit. This module knows neither sockets nor time, and of the
connection only its `Link`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import httptools

from carpool.http.http_exchange import HttpExchange
from carpool.http.limits import Refused

if TYPE_CHECKING:
    from carpool.http.http_exchange import Link
    from carpool.http.known_heads import KnownHeads
    from carpool.http.limits import Limits

__all__ = ["Reader"]

log = logging.getLogger(__name__)

_LINE_BYTES = 64  # most bytes of a head besides target and headers
_TRIES = 16  # after this many new heads in a row, heads of this client are not looked up
_PIECE_BYTES = 4096  # smaller pieces of a body are joined, for the same reason
_FRAMING = frozenset((b"content-length", b"transfer-encoding"))
_DECISIVE = _FRAMING | {b"connection", b"expect", b"host", b"upgrade"}


class Reader:
    """Reads the requests of one connection.

    Attributes:
        partial: Whether a request has begun and is incomplete.
        expects: Whether its client waits for 100 Continue.
    """

    __slots__ = (
        "_body",
        "_body_bytes",
        "_connection",
        "_exchange",
        "_fed",
        "_fed_before",
        "_feeding",
        "_first",
        "_headers",
        "_heads",
        "_limits",
        "_parser",
        "_progress",
        "_target",
        "_trailer_bytes",
        "_tries",
        "_upgrade",
        "_whole",
        "expects",
        "partial",
    )

    def __init__(self, connection: Link, limits: Limits, heads: KnownHeads) -> None:
        self._connection = connection
        self._heads = heads
        self._tries = _TRIES
        self._whole: tuple[HttpExchange, int] | None = None  # the last request, and its body's size
        self._limits = limits
        self._parser = httptools.HttpRequestParser(self)
        self._exchange: HttpExchange | None = None
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes | bytearray] = []
        self._body_bytes = self._trailer_bytes = 0
        self._upgrade = False
        self._feeding = 0  # size of the read that is being parsed
        self._first = False  # whether a request that begins now begins with the read
        self._fed = 0  # bytes read for the head, and later since body or trailers last grew
        self._fed_before = 0  # size of the read in the middle of which the request began
        self._progress = 0
        self.expects = self.partial = False

    def feed(self, data: bytes) -> None:
        """Parse data; whole requests are passed to `Link.accept` at once.

        Raises:
            Refused: the bytes are not a request, or one beyond the limits.
        """
        alone = self._tries > 0 and not self.partial
        if alone and self._accept_known(data):
            return
        self._feeding = len(data)
        self._fed += self._feeding
        self._first = not self.partial
        offset = None
        try:  # as `_parse`, without a call: this is every request
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            offset = upgrade.args[0]
        except httptools.HttpParserError as error:
            raise _refusal(error) from error
        if offset is not None:
            self._stay(memoryview(data)[offset:])
        if self.partial:
            self._check_progress()
        elif alone and self._whole:
            self._heads.keep(data, *self._whole)
        self._whole = None

    def _accept_known(self, data: bytes) -> bool:
        """Accept ``data`` if it is a whole request with a known head; return whether it is."""
        end = data.find(b"\r\n\r\n") + 4
        known = self._heads.get(data[:end])
        if known is None or known.body_bytes != len(data) - end:
            self._tries -= 1
            return False
        self._tries = _TRIES
        exchange = HttpExchange(known.method, known.target, known.headers)
        exchange.connection = self._connection
        exchange.known_head = known
        exchange.body = data[end:]
        self._connection.accept(exchange)
        return True

    def take(self) -> HttpExchange:
        """Return the request being read, to be refused; its body is dropped."""
        exchange = self._exchange or HttpExchange("GET", "", ())
        exchange.connection = self._connection
        self._exchange = None
        self._body = []
        self.partial = False
        return exchange

    def close(self) -> None:
        """Release the parser and the connection, which refer to this reader."""
        del self._parser, self._connection

    def _parse(self, data: bytes | memoryview) -> int | None:
        """Parse data; return the offset at which the parser stops at an upgrade, else None."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            offset: int = upgrade.args[0]
            return offset
        except httptools.HttpParserError as error:
            raise _refusal(error) from error
        return None

    def _stay(self, rest: memoryview) -> None:
        """Continue with HTTP/1.1 after the client offered another protocol.

        The parser considers such a request complete without its body, and stops. A new parser is
        given the framing headers again, so that it continues with the body.
        """
        offset: int | None = 0
        while offset is not None:
            rest = rest[offset:]
            framing = [header for header in self._headers if header[0] in _FRAMING]
            lines = [b"%b: %b\r\n" % header for header in framing]
            self._parser = httptools.HttpRequestParser(self)
            self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(lines))
            offset = self._parse(rest)

    def _check_progress(self) -> None:
        """Refuse a head, or framing between the parts of a body, that grows without end."""
        if self.expects:
            self._connection.invite()
        progress = self._body_bytes + self._trailer_bytes
        if not self._fed and not self._fed_before:  # the head came in this read: what is behind it?
            self._fed = self._feeding - self._head_bytes() - _LINE_BYTES
        if progress != self._progress:
            self._progress = progress
            self._fed = 0
        elif self._fed > self._limits.head_bytes + _LINE_BYTES:
            raise self._large_head()

    def _head_bytes(self) -> int:
        lines = sum([len(name) + len(value) + 4 for name, value in self._headers])
        return lines + len(self._target)

    def _large_head(self) -> Refused:
        return Refused(431, f"headers are larger than {self._limits.head_bytes} bytes")

    # -- httptools --------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Note the start of a request."""
        if self._upgrade:
            return
        self.partial = True
        if self._first:
            self._first = False
            self._fed, self._fed_before = self._feeding, 0
        else:
            self._fed, self._fed_before = 0, self._feeding

    def on_url(self, url: bytes) -> None:
        """Add a piece of the target."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header; trailers are read and dropped."""
        if self._exchange is None:
            self._headers.append((name.lower(), value))
        else:
            self._trailer_bytes += len(name) + len(value) + 4
            if self._trailer_bytes > self._limits.head_bytes:
                raise self._large_head()

    def on_headers_complete(self) -> None:
        """Check the framing and sizes of the complete head."""
        if self._upgrade:  # `_stay` calls this again
            self._upgrade = False
            return
        parser, headers, limits = self._parser, self._headers, self._limits
        limit = limits.head_bytes
        if self._fed + self._fed_before > limit and self._head_bytes() > limit:
            raise self._large_head()
        self._fed = 0
        if len(headers) > limits.headers:
            raise Refused(431, f"{len(headers)} headers: expected at most {limits.headers}")
        method, target = parser.get_method().decode("latin-1"), self._target.decode("latin-1")
        exchange = self._exchange = HttpExchange(method, target, tuple(headers))
        exchange.connection = self._connection
        exchange.keep_alive = parser.should_keep_alive()
        if target[:1] != "/" or method == "CONNECT":
            exchange.target = _origin_form(method, target)
        self._check(exchange)

    def on_body(self, body: bytes) -> None:
        """Add a piece of the body."""
        self._body_bytes += len(body)
        if self._body_bytes > self._limits.body_bytes:
            raise self._large_body()
        pieces = self._body
        if len(body) >= _PIECE_BYTES or not pieces:
            pieces.append(body)
        elif type(pieces[-1]) is bytearray:
            pieces[-1] += body
        else:
            pieces.append(bytearray(body))

    def on_message_complete(self) -> None:
        """Hand over the complete request."""
        exchange = self._exchange
        if exchange is None or self._upgrade:
            return
        pieces = self._body
        if pieces:
            exchange.body = bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)
            self._body = []
        if self._tries > 0:
            self._whole = exchange, len(exchange.body)
        self._exchange = None
        self._target = b""
        self._headers = []
        self._body_bytes = self._trailer_bytes = self._progress = 0
        self.expects = self.partial = False
        self._connection.accept(exchange)

    # -- framing ----------------------------------------------------------------------------

    def _check(self, exchange: HttpExchange) -> None:
        hosts = 0
        for name, value in exchange.headers:
            if name not in _DECISIVE:
                continue
            if name == b"host":
                hosts += 1
            elif name == b"content-length":
                if int(value) > self._limits.body_bytes:
                    raise self._large_body()
            else:
                self._check_rarer(name, value, exchange)
        if hosts != 1 and (hosts or self._parser.get_http_version() == "1.1"):
            raise Refused(400, f"{hosts} host headers: expected one")
        if not exchange.keep_alive:
            self._check_version(exchange)

    def _check_rarer(self, name: bytes, value: bytes, exchange: HttpExchange) -> None:
        if name == b"upgrade":
            self._upgrade = self._parser.should_upgrade()
            return
        self._check_version(exchange)
        if name == b"transfer-encoding":
            if exchange.header(b"content-length") is not None or not exchange.chunked:
                raise Refused(
                    400, "transfer-encoding together with content-length, or before HTTP/1.1"
                )
            if value.lower() != b"chunked":
                raise Refused(501, "the only supported transfer-encoding is 'chunked'")
        elif name == b"expect":
            self.expects = exchange.chunked and value.lower() == b"100-continue"

    def _check_version(self, exchange: HttpExchange) -> None:
        """Refuse unknown versions; close HTTP/1.0 connections after the response."""
        version = self._parser.get_http_version()
        if version == "1.0":  # its persistence is an extension that proxies get wrong
            exchange.keep_alive = exchange.chunked = False
        elif version != "1.1":
            raise Refused(505, f"HTTP/{version}: expected HTTP/1.1")

    def _large_body(self) -> Refused:
        return Refused(413, f"the body is larger than {self._limits.body_bytes} bytes")


def _origin_form(method: str, target: str) -> str:
    """Return path and query of a target in another form (RFC 9112, section 3.2)."""
    if method == "CONNECT":
        raise Refused(501, "CONNECT: this server is not a proxy")
    if target == "*" and method == "OPTIONS":
        return target
    scheme, _, rest = target.partition("://")
    if scheme.lower() not in ("http", "https"):
        raise Refused(400, "the target is neither a path nor an http URL")
    end = min([at for at in (rest.find("/"), rest.find("?")) if at >= 0], default=len(rest))
    return rest[end:] if rest[end : end + 1] == "/" else f"/{rest[end:]}"


def _refusal(error: httptools.HttpParserError) -> Refused:
    cause = error.__context__ or error
    if isinstance(cause, Refused):
        return cause
    if isinstance(cause, httptools.HttpParserError):
        return Refused(400, f"not an HTTP/1.1 request: {error}")
    log.error("reading a request failed", exc_info=cause)
    return Refused(500, "internal error")
