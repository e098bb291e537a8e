"""A request and its response, as an application sees them.

How the response reaches the caller is left to the classes derived from `Exchange`.
"""

from __future__ import annotations

import functools
import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from carpool import errors
from carpool.errors import BadRequest

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    Body = bytes | memoryview
    Successor = Callable[[Any, asyncio.Transport], Any]  # (server, socket) -> connection
    Headers = Iterable[tuple[str, str]] | bytes  # or their lines as sent, each with its end

__all__ = ["UNKNOWN_LENGTH", "Exchange", "KnownHead", "encoded"]

log = logging.getLogger(__name__)

UNKNOWN_LENGTH = -1


def encoded(headers: Headers) -> bytes:
    """Return headers in the form in which they are sent."""
    return headers if isinstance(headers, bytes) else _encoded(tuple(headers))


@functools.lru_cache(maxsize=16)  # responses mostly have the same few, and large ones are kept, too
def _encoded(headers: tuple[tuple[str, str], ...]) -> bytes:
    lines = [f"{name}: {value}\r\n".encode("latin-1", "replace") for name, value in headers]
    return b"".join(lines)


@dataclass(slots=True)
class KnownHead:
    """Contents of a head that a server keeps.

    Attributes:
        body_bytes: Length of the body that follows it, if that is known.
        derived: What the application has derived from the head, if it keeps it here.
    """

    method: str
    target: str
    headers: tuple[tuple[bytes, bytes], ...]
    body_bytes: int = 0
    derived: Any = None


class Exchange:
    """A request and its response.

    Attributes:
        method, target: As sent; ``target`` is path and query.
        headers: Names in lower case, in order of arrival.
        body: The whole decoded body.
        known_head: Its head, if the server keeps those that repeat; else None.
        own_headers: Of ``headers``, those that are not in ``known_head``: they do not repeat.
        received: Event-loop time at which the request was complete, in seconds.
        on_gone: Called once if the client leaves before the response is complete.
        gone: Whether the client has left; responses are then dropped.
        keep_alive: Whether the connection stays open after the response.
        chunked: Whether the client supports chunked responses; if not, closing the connection
            ends the response.
        added: Headers added to any response.
        answered: Whether the response is complete.
        held_bytes: Approximate memory that the server holds for it.
        timeout_s: Limit from its arrival on, where the protocol itself has one; HTTP has none.
    """

    __slots__ = (
        "_held",
        "_streaming",
        "added",
        "answered",
        "body",
        "chunked",
        "gone",
        "headers",
        "held_bytes",
        "keep_alive",
        "known_head",
        "method",
        "on_gone",
        "own_headers",
        "received",
        "target",
        "timeout_s",
    )

    def __init__(self, method: str, target: str, headers: tuple[tuple[bytes, bytes], ...]) -> None:
        self._held: list[bytes] = []  # parts of the response that cannot be sent yet
        self._streaming = False
        self.added: tuple[tuple[str, str], ...] = ()
        self.method = method
        self.target = target
        self.headers = headers
        self.body: bytes = b""
        self.known_head: KnownHead | None = None
        self.own_headers: tuple[tuple[bytes, bytes], ...] = ()
        self.keep_alive = True
        self.chunked = True
        self.held_bytes = 0
        self.received = 0.0
        self.timeout_s = math.inf
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
        raise NotImplementedError

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
        if not (self.answered or self._streaming):
            self._respond(status, body, content_type, headers, length)

    def _respond(
        self, status: int, body: Body, content_type: str, headers: Headers, length: int | None
    ) -> None:
        """Send a whole response; called once, with the arguments of `reply`."""
        raise NotImplementedError

    def fail(self, error: errors.CarpoolError, headers: Iterable[tuple[str, str]] = ()) -> None:
        """Report ``error`` with its status, its message and, if known, when to retry."""
        status, body, own = errors.answer(error)
        self.reply(status, body, headers=(*headers, *own))

    def start(self, status: int, headers: Headers = ()) -> None:
        """Start a streamed response; ``write`` its chunks, then ``end`` it."""
        raise NotImplementedError

    def write(self, chunk: bytes) -> None:
        """Add a part to a streamed response."""
        raise NotImplementedError

    def end(self) -> None:
        """Complete a streamed response."""
        raise NotImplementedError

    def abort(self) -> None:
        """Break the response off, so that the client sees the cut."""
        raise NotImplementedError

    async def drained(self) -> None:
        """Wait until the client has read enough of a streamed response for more to be sent.

        Return at once if it is sent as a whole at its end.
        """

    def switch(self, answer: bytes, protocol: Successor) -> None:
        """Send ``answer`` unchanged and pass the connection to another protocol.

        Raises:
            BadRequest: it has no connection of its own, or other requests were sent on it as well.
            Overloaded: the server is closing.
        """
        del answer, protocol
        msg = "a call cannot upgrade its connection"
        raise BadRequest(msg)

    def tell_gone(self) -> None:
        """Tell the application, once, that the client has left; its errors are logged."""
        on_gone, self.on_gone = (
            self.on_gone,
            None,
        )  # mostly refers to this exchange: break the cycle
        if on_gone:
            try:
                on_gone()
            except Exception:
                log.exception("cancelling %s %s failed", self.method, self.target)
