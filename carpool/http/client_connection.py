"""One keep-alive connection to a peer: sends a request and reads the response as it arrives.

Handles parsing, framing and back-pressure of one response at a time, and whether the socket can be
reused after it. Knows neither addresses nor other connections; the pool (`client`) decides which
request uses it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

import httptools

from carpool.errors import FunctionFault
from carpool.http.lost_peers import end_if_lost, is_lost

if TYPE_CHECKING:
    from collections.abc import Callable

    from carpool.wire import Buffer

__all__ = ["AnswerTooLarge", "ClientConnection", "ConnectionFailed"]

_HIGH_WATER_BYTES = 256 * 1024
_JOIN_BELOW_BYTES = 64 * 1024
_CRASHED = 500
_HEAD_BYTES = 64 * 1024  # of an answer's head, and of all that is neither head nor body


class ConnectionFailed(FunctionFault):
    """The peer could not be reached, closed early, or did not respond in HTTP/1.1.

    Attributes:
        sent: Whether any of the request may have reached the peer.
        stale: Whether there was no byte of a response, and most likely not because of the request:
            the connection had served another before, and was closed just as this one was on its
            way; or the peer's machine is lost.
    """

    def __init__(self, message: str, *, sent: bool, stale: bool = False) -> None:
        super().__init__(message)
        self.sent = sent
        self.stale = stale


class AnswerTooLarge(FunctionFault):
    """The peer's response is larger than allowed; it was not read to its end."""


class ClientConnection(asyncio.Protocol):
    """One socket to the peer.

    Attributes:
        open: Whether the socket is open.
        used_at: Event-loop time at which its last request ended.
        status: Status of the current response.
        headers: Headers of the current response, names in lower case.
        chunks: Parts of the body that were received and not taken yet; use `next_chunk`.
        head_complete: Whether status and headers have been received.
        complete: Whether the response is whole, or none is expected.
        reusable: Whether another request may follow.
        failure: Why no more of the response will arrive; None while it may.
        on_progress: Called when more of the response has arrived, or never will, if it is not None.
    """

    transport: asyncio.Transport

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._parser = httptools.HttpResponseParser(self)
        self.failure: ConnectionFailed | None = None
        self.on_progress: Callable[[], None] | None = None
        self._paused = False
        self._buffered = 0
        self.open = False
        self.used_at = 0.0
        self._requests = 0
        self._reset()
        self.complete = True  # no request is under way

    def send(self, method: str, head: bytes, body: Buffer) -> None:
        """Start a request; the connection must be idle.

        Raises:
            ConnectionFailed: the peer has closed it; nothing was sent.
        """
        if not self.open:
            msg = "the connection was closed before the request was sent"
            raise ConnectionFailed(msg, sent=False)
        self._reset()
        self._requests += 1
        self._headless = method == "HEAD"
        if len(body) < _JOIN_BELOW_BYTES:
            self.transport.write(b"".join((head, body)))
        else:
            self.transport.write(head)
            self.transport.write(body)

    def progress(self) -> asyncio.Future[None]:
        """Return a future that ends when more of the response has arrived, or never will.

        Raises:
            ConnectionFailed: it is known that no more will arrive.
        """
        if self.failure:
            raise self.failure
        news = self._loop.create_future()

        def end() -> None:
            if not news.done():
                news.set_result(None)

        self.on_progress = end
        return news

    def next_chunk(self) -> bytes:
        """Return one piece of the body; reading resumes when enough has been taken."""
        chunk = self.chunks.popleft()
        self._buffered -= len(chunk)
        if self._paused and self._buffered < _HIGH_WATER_BYTES:
            self._paused = False
            self.transport.resume_reading()
        return chunk

    def close(self) -> None:
        """Close at once, even while a request is pending."""
        self.open = False
        self.transport.abort()

    def forget(self) -> None:
        """Drop the failure, as its traceback refers to the waiting task and back to this."""
        self.failure = None

    def _reset(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.chunks: deque[bytes] = deque()
        self.head_complete = False
        self.complete = False
        self.reusable = False
        self._headless = False
        self._heard = False  # there is a byte of an answer
        self._overhead = 0  # bytes since the head was complete, or since the body last grew

    # -- asyncio ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport of the connected socket."""
        self.transport = transport  # type: ignore[assignment]
        end_if_lost(transport)
        self.open = True

    def data_received(self, data: bytes) -> None:
        """Parse more of the response."""
        if self.complete:  # unasked: this must not become the answer to the next request
            self.close()
            return
        self._heard = True
        self._overhead += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.close()
            if not self.complete:
                self._fail(f"the answer is not HTTP/1.1: {error}")
                return
        if self._overhead > _HEAD_BYTES and not self.complete:
            self.close()
            self._fail(f"the answer's head or framing is larger than {_HEAD_BYTES} bytes")
            return
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Complete a response without a length; fail any other that is incomplete."""
        self.open = False
        if self.head_complete and not (self.complete or exc) and self._ends_with_connection():
            self.complete = True
            self._wake()
        elif not self.complete:
            message = f"the connection was closed before the answer was complete{_because(exc)}"
            self._fail(message, lost=is_lost(exc))

    def _ends_with_connection(self) -> bool:
        names = {name for name, _ in self.headers}
        return not names & {b"content-length", b"transfer-encoding"}

    def _fail(self, message: str, *, lost: bool = False) -> None:
        if self.failure:
            return  # closing the connection is its consequence
        stale = (self._requests > 1 or lost) and not self._heard
        self.failure = ConnectionFailed(message, sent=True, stale=stale)
        if self.on_progress:
            self.on_progress()

    def _wake(self) -> None:
        if self.head_complete and self.on_progress:
            self.on_progress()

    # -- httptools --------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Handle the start of a response."""
        if self.complete:  # more than the requested response
            self.reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header; trailers are dropped."""
        if not self.head_complete:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Mark the head as complete, unless it is that of an interim response."""
        if self.complete:
            return
        self.status = self._parser.get_status_code()
        if self.status < 200:  # noqa: PLR2004 - an interim answer: the real one follows
            self.headers = []
            return
        self.head_complete = True
        self._overhead = 0
        # Some servers (uvicorn) close without notice after a 500: the next request would be lost.
        self.reusable = self._parser.should_keep_alive() and self.status != _CRASHED
        if self._headless:  # the parser would wait for a body that HEAD does not have
            self.complete = True
            self.reusable = False

    def on_body(self, body: bytes) -> None:
        """Store a piece of the body."""
        if self.complete:
            return
        self._overhead = 0
        self.chunks.append(body)
        self._buffered += len(body)
        if self._buffered > _HIGH_WATER_BYTES and not self._paused:
            self._paused = True
            self.transport.pause_reading()

    def on_message_complete(self) -> None:
        """Mark the response as complete."""
        if self.head_complete:
            self.complete = True


def _because(exc: BaseException | None) -> str:
    return f": {exc}" if exc else ""
