"""One connection to a peer over which calls are sent in bundles (`call_frames`).

Handles its frames and its unanswered calls; everything else is left to `call_client`.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, NamedTuple, Protocol

from carpool import wire
from carpool.http import call_frames
from carpool.http.call_window import CallWindow
from carpool.http.client_connection import AnswerTooLarge, ConnectionFailed
from carpool.http.lost_peers import end_if_lost, is_lost
from carpool.wire import WireError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from carpool.errors import FunctionFault

__all__ = ["CallConnection", "NotSwitched", "Receiver", "Unsent", "tell_failed"]

log = logging.getLogger(__name__)

_REQUEST = b"GET %b HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: %b\r\n\r\n" % (
    call_frames.PATH.encode(),
    call_frames.PROTOCOL,
)
_HEAD_BYTES = 16 * 1024  # longest head of the response to the upgrade
_SWITCHED = 101
_CLOSED = "the connection was closed before the answer was complete"


class Receiver(Protocol):
    """Sender of a call; one of the methods is called, once, unless it has cancelled the call."""

    def answered(self, status: int, head: bytes, body: memoryview) -> None:
        """Take the response; ``head`` is in the form that `call_frames.answer_lines` reads."""

    def failed(self, error: FunctionFault) -> None:
        """Take the error, one of those of `Pool.request`, if there is no response."""


class Unsent(NamedTuple):
    """A call waiting to be sent."""

    head: bytes
    content: bytes
    receiver: Receiver


def tell_failed(receiver: Receiver, error: FunctionFault) -> None:
    """Tell the sender of a call that it failed; log an error of its own, for the others' sake."""
    try:
        receiver.failed(error)
    except Exception:
        log.exception("handling the failure of a bundled call (%s) raised an error", error)


class NotSwitched(Exception):
    """Raised when the peer does not switch from HTTP.

    Attributes:
        status: Status of its response.
    """

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class CallConnection(asyncio.Protocol):
    """A connection that carries calls.

    Args:
        loop: The event loop.
        answer_bytes: Largest body of a response.
        retired: Called when the connection takes no further calls.
        closed: Called when the connection is closed.

    Attributes:
        switched: Done when calls may be sent; raises `NotSwitched` or an `OSError`.
    """

    transport: asyncio.Transport

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        answer_bytes: int,
        retired: Callable[[CallConnection], None],
        closed: Callable[[CallConnection], None],
    ) -> None:
        self._loop = loop
        self.switched: asyncio.Future[None] = loop.create_future()
        self.switched.add_done_callback(lambda f: f.cancelled() or f.exception())
        self._answer_bytes = answer_bytes
        self._retired = retired
        self._closed = closed
        self._head = b""
        self._frames = call_frames.FrameReader(answer_bytes + call_frames.SLACK_BYTES)
        self._calls: dict[int, Receiver] = {}
        self._served = False  # a call was answered on it before
        self._ended = False  # the peer wants no further calls on it
        self._window = CallWindow()
        self._marked = False  # the next answers have a mark
        self._refused = 0  # calls refused in the peer's place and not reported to it yet
        self._late_after_s = math.inf  # from a call's arrival; until the peer marks an answer

    @property
    def usable(self) -> bool:
        """Whether the connection accepts calls."""
        return not (self._ended or self.transport.is_closing())

    @property
    def hold_max_s(self) -> float:
        """Age up to which a call can be answered in time; infinite before an answer was marked."""
        return self._late_after_s - self._window.round_trip_s

    def send(self, unsent: Mapping[int, Unsent]) -> None:
        """Send calls, given by their ids."""
        self._calls.update((call_id, each.receiver) for call_id, each in unsent.items())
        if self._late_after_s < math.inf:
            self._window.sent(max(unsent), self._loop.time())
        heads, contents, _ = zip(*unsent.values(), strict=True)
        message = wire.encode_request([*unsent], [math.inf] * len(unsent), heads, contents)
        self.transport.write(call_frames.frame(message))

    def is_full(self, more: int) -> bool:
        """Return whether ``more`` calls in addition to the open ones are too many for the peer."""
        return len(self._calls) + more > self._window.size

    def count_refused(self, count: int) -> None:
        """Report calls refused in the peer's place to it, after its next answers."""
        self._refused += count

    def cancel(self, call_id: int) -> None:
        """Cancel a call whose caller has left, if it was sent on this connection."""
        if self._calls.pop(call_id, None) is not None:
            self.transport.write(call_frames.frame(call_frames.cancelled([call_id])))
            self._close_when_done()

    # -- asyncio ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask the peer to switch from HTTP, now that the socket is connected."""
        self.transport = transport  # type: ignore[assignment]
        end_if_lost(transport)
        self.transport.write(_REQUEST)

    def data_received(self, data: bytes) -> None:
        """Read responses, once the peer has switched."""
        if not self.switched.done():
            data = self._switch(data)
        try:
            for message in self._frames.feed(data, self._dropped) if data else ():
                self._take(message)
        except WireError as error:
            log.warning("closing a connection for bundled calls: %s", error)
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all pending calls."""
        if not self.switched.done():
            self.switched.set_exception(ConnectionResetError(_CLOSED))
        self._closed(self)
        calls, self._calls = self._calls, {}
        message = f"{_CLOSED}: {exc}" if exc else _CLOSED
        stale = self._served or is_lost(exc)
        for receiver in calls.values():
            tell_failed(receiver, ConnectionFailed(message, sent=True, stale=stale))

    # -- messages ---------------------------------------------------------------------------

    def _switch(self, data: bytes) -> bytes:
        """Read the HTTP response; return the data that follows it."""
        head, end, rest = (self._head + data).partition(b"\r\n\r\n")
        if not end and len(head) <= _HEAD_BYTES:
            self._head = head
            return b""
        word = head[len(b"HTTP/1.1 ") :][:3]
        status = int(word) if word.isdigit() else 0
        if status == _SWITCHED:
            self.switched.set_result(None)
            return rest
        self.switched.set_exception(NotSwitched(status))
        self.transport.abort()
        return b""

    def _take(self, message: memoryview) -> None:
        if message == call_frames.ENDED:
            self._ended = True
            self._retired(self)
            self._close_when_done()
            return
        if message[:4] == call_frames.FULL:
            self._marked = True
            self._late_after_s = call_frames.number(message) / 1e3
            return
        answers = wire.decode_answer(message, call_frames.MOST_ANSWERS)
        if self._late_after_s < math.inf:
            self._adapt(answers.ids)
        for call_id, status, head, body in zip(*answers, strict=True):
            receiver = self._calls.pop(call_id, None)
            if receiver is None:  # its caller has left
                continue
            if status == call_frames.BROKEN_OFF:
                tell_failed(receiver, ConnectionFailed(_CLOSED, sent=True, stale=self._served))
            elif len(body) > self._answer_bytes:
                tell_failed(receiver, self._too_large())
            else:
                self._served = True
                try:
                    receiver.answered(status, head, body)
                except Exception:  # its own fault, and not that of the others
                    log.exception("handling a response of a bundle raised an error")
        self._close_when_done()

    def _adapt(self, answered: Sequence[int]) -> None:
        """Adapt the number of open calls to answers, and tell the peer what was refused."""
        now = self._loop.time()
        self._window.answered(answered, [*self._calls], now, marked=self._marked)
        self._marked = False
        if self._refused:
            refused, self._refused = call_frames.numbered(call_frames.REFUSED, self._refused), 0
            self.transport.write(call_frames.frame(refused))

    def _dropped(self, beginning: memoryview) -> None:
        """Fail the only answer in a message that is too large to be kept."""
        receiver = self._calls.pop(call_frames.only_answer(beginning), None)
        if receiver is not None:
            tell_failed(receiver, self._too_large())

    def _too_large(self) -> AnswerTooLarge:
        return AnswerTooLarge(f"the answer is larger than {self._answer_bytes} bytes")

    def _close_when_done(self) -> None:
        if self._ended and not self._calls:
            self.transport.close()
