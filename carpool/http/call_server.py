"""The sidecar's end of a connection over which a provider sends calls in bundles (`call_frames`).

To the application each call is an ordinary exchange. The differences are handled here: responses
of one event-loop iteration are sent together, up to `BUNDLE_CALLS` in a message, and a caller that
leaves is reported by a message rather than by a closed connection. Memory, clients that do not read
and time limits are handled as for other connections.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING

from carpool import errors, wire
from carpool.caching import SmallCache
from carpool.errors import FunctionFault, Overloaded
from carpool.http import call_frames
from carpool.http.connection import Connection
from carpool.http.exchange import Exchange, encoded
from carpool.http.limits import (
    CALL_BYTES_HELD,
    HEADER_BYTES_HELD,
    STALLED_S,
    TOO_MUCH_HELD,
    Refused,
)
from carpool.wire import WireError

if TYPE_CHECKING:
    import asyncio

    from carpool.errors import CarpoolError
    from carpool.http.exchange import Body, Headers, KnownHead
    from carpool.http.owner import Owner

__all__ = ["ServedCalls", "accept"]

log = logging.getLogger(__name__)

_SWITCHING = (
    b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: %b\r\n\r\n"
    % call_frames.PROTOCOL
)
_UPGRADE = (("upgrade", call_frames.PROTOCOL.decode()), ("connection", "upgrade"))
_COLLECTED_BYTES = 64 * 1024 * 1024  # limit of an answer in pieces, which is collected for a bundle
_TOO_LARGE = (
    f"the response is streamed and has more than {_COLLECTED_BYTES} bytes in total; accept "
    "text/event-stream or application/x-ndjson to get each piece as it arrives"
)
_LINGER_S = 2.0  # wait before an idle connection is closed after the provider was notified
_UPGRADE_REQUIRED = 426
_AGAIN_S = 1


def accept(exchange: Exchange) -> None:
    """Switch the connection of a request for ``call_frames.PATH`` to carrying calls."""
    options = b",".join(value for name, value in exchange.headers if name == b"connection")
    meant = b"upgrade" in [option.strip() for option in options.lower().split(b",")]
    if not meant or exchange.header(b"upgrade") != call_frames.PROTOCOL:
        expected = f"'Connection: upgrade' and 'Upgrade: {call_frames.PROTOCOL.decode()}'"
        reason = errors.body(f"expected {expected}")
        exchange.reply(_UPGRADE_REQUIRED, reason, headers=_UPGRADE)
        return
    exchange.switch(_SWITCHING, ServedCalls)


@functools.lru_cache(maxsize=16)  # as in `exchange`
def _answer_head(content_type: str, lines: bytes) -> bytes:
    """Return the head of a response in a bundle; cached, as responses mostly have the same."""
    first = f"\ncontent-type: {content_type}\n" if content_type else "\n"
    return first.encode("latin-1", "replace") + lines.replace(b"\r\n", b"\n")


class ServedCalls(Connection):
    """Server side of a connection that carries calls."""

    # It has the calls of many clients: one large answer that memory is short for ends it only if
    # the provider does not read at all.
    patience_s = STALLED_S

    __slots__ = ("_answers", "_answers_bytes", "_calls", "_ended", "_frames", "_heads")

    def __init__(self, server: Owner[Connection], transport: asyncio.Transport) -> None:
        super().__init__(server)
        self.transport = transport
        self._frames = call_frames.FrameReader(call_frames.SLACK_BYTES)
        self._heads = SmallCache(call_frames.call_head)
        self._calls: dict[int, _Call] = {}
        self._answers: list[tuple[int, int, bytes, bytes | memoryview]] = []
        self._answers_bytes = 0
        self._ended = False  # the provider was told to send no further calls

    # -- calls ------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Start and cancel calls; malformed data closes the connection."""
        if self._leaving:
            return
        server = self.server
        try:
            messages = self._frames.feed(data)
            partial_bytes = self._frames.partial_bytes
            if messages or not self._unclaimed:
                self._active_since = server.now()
            server.held_bytes += partial_bytes - self._unclaimed
            self._unclaimed = partial_bytes
            for message in messages:
                self._take(message)
        except WireError as error:
            log.warning("closing a connection for bundled calls: %s", error)
            self.abort()

    def _take(self, message: memoryview) -> None:
        if message[:4] == call_frames.CANCELLED:
            for call_id in call_frames.ids(message):
                if call := self._calls.pop(call_id, None):
                    self._forget(call)
            return
        if message[:4] == call_frames.REFUSED:
            count = call_frames.number(message)
            if overload := self.server.overload:
                overload.refused_before(count)
            return
        self._take_calls(wire.decode_request(message))

    def _take_calls(self, columns: wire.RequestColumns) -> None:
        now = self.server.now()
        heads = {head: self._read_head(head) for head in set(columns.heads)}
        for call_id, head, body in zip(columns.ids, columns.heads, columns.bodies, strict=True):
            if call_id in self._calls:
                msg = f"two calls have the id {call_id}"
                raise WireError(msg)
            self._calls[call_id] = call = _Call(self, call_id)
            known_head = heads[head]
            if isinstance(known_head, Refused):
                call.reply(known_head.status, errors.body(known_head))
                continue
            try:
                call.read(known_head, body)
            except WireError as error:  # its own fault, and not that of the others
                call.reply(400, errors.body(error))
            else:
                self._begin(call, now, len(head) + len(body) - len(call.body))

    def _read_head(self, head: bytes) -> KnownHead | Refused:
        """Return the contents of a head, or why all calls that have it are refused."""
        limit_bytes = self._limits.head_bytes
        if len(head) > limit_bytes:
            return Refused(431, f"headers are larger than {limit_bytes} bytes")
        try:
            return self._heads(head)
        except WireError as error:
            return Refused(400, str(error))

    def _begin(self, call: _Call, now: float, head_bytes: int) -> None:
        server, limits, headers = self.server, self._limits, len(call.headers)
        call.received = now
        call.held_bytes = CALL_BYTES_HELD + HEADER_BYTES_HELD * headers + len(call.body)
        server.held_bytes += call.held_bytes
        if head_bytes > limits.head_bytes or headers > limits.headers:
            most = f"{limits.headers} headers of {limits.head_bytes} bytes"
            call.reply(431, errors.body(f"more than {most}: {headers} of {head_bytes}"))
        elif len(call.body) > limits.body_bytes:
            call.reply(413, errors.body(f"the body is larger than {limits.body_bytes} bytes"))
        elif server.held_bytes > server.most_held_bytes and not server.drop_stalled(STALLED_S):
            refused = Refused(503, TOO_MUCH_HELD, _AGAIN_S)
            call.reply(refused.status, errors.body(refused), headers=refused.headers)
        else:
            server.dispatch(call)

    def answer_call(self, call: _Call, status: int, head: bytes, body: bytes | memoryview) -> None:
        """Send a response at the end of this event-loop iteration at the latest."""
        del self._calls[call.call_id]
        server = self.server
        server.held_bytes -= call.held_bytes
        if len(body) >= call_frames.BUNDLE_BYTES:
            self._flush()  # it goes alone
        if not self._answers:
            server.loop.call_soon(self._flush)
        self._answers.append((call.call_id, status, head, body))
        self._answers_bytes += len(head) + len(body)
        if (
            len(self._answers) >= call_frames.BUNDLE_CALLS
            or self._answers_bytes >= call_frames.BUNDLE_BYTES
        ):
            self._flush()

    def refuse(self, call: _Call, error: CarpoolError) -> None:
        """Answer a call with an error instead of what was collected, and have its handler stop."""
        on_gone = call.on_gone
        call.fail_instead(error)
        call.gone, call.on_gone = True, on_gone
        call.tell_gone()

    def _flush(self) -> None:
        if not self._answers or self._leaving:
            return
        answers, self._answers, self._answers_bytes = self._answers, [], 0
        data = call_frames.frame(wire.encode_answer(*zip(*answers, strict=True)))
        overload = self.server.overload
        if overload and overload.full():
            mark = call_frames.numbered(call_frames.FULL, overload.late_after_ms)
            data = call_frames.frame(mark) + data
        self.write(data)
        self._active_since = self.server.now()
        self.server.connections.move_to_end(self)

    def _forget(self, call: _Call) -> None:
        """Drop a call whose caller has left; it gets no response."""
        self.server.held_bytes -= call.held_bytes
        call.gone = True
        call.tell_gone()

    # -- the connection ---------------------------------------------------------------------

    def idle(self, now: float) -> bool:
        """Return whether there are no calls."""
        del now
        return not (self._calls or self._answers or self._frames.partial_bytes)

    def retire(self) -> None:
        """Direct further calls to another connection; the provider then closes this one."""
        if not (self._ended or self._leaving):
            self._ended = True
            self._active_since = self.server.now()
            self.write(call_frames.frame(call_frames.ENDED))

    def close_when_idle(self) -> None:
        """Let the provider close the connection, as calls sent and not read yet would be lost."""
        self.retire()

    def expire(self, now: float) -> None:
        """Enforce the time limits; called about once a second."""
        limits, backlog = self._limits, self._backlog
        waited_s = now - self._active_since
        if backlog and backlog.moves(now):
            self.server.behind.move_to_end(self)
        stalled = backlog and now - backlog.stalled_since > limits.read_s
        if stalled or (self._frames.partial_bytes and waited_s > limits.read_s):
            self.abort()
        elif self.idle(now) and waited_s > (_LINGER_S if self._ended else limits.idle_s):
            if self._ended:
                self._leave()
            else:
                self.retire()

    def _depart(self) -> None:
        """Drop all calls, as the provider has disconnected."""
        super()._depart()
        calls = tuple(self._calls.values())
        self._calls.clear()
        self._answers.clear()
        for call in calls:
            self._forget(call)


class _Call(Exchange):
    """One call; a response in several parts is collected before it is sent."""

    __slots__ = ("_collected_bytes", "_started", "call_id", "calls")

    def __init__(self, calls: ServedCalls, call_id: int) -> None:
        super().__init__("", "", ())
        self.calls = calls
        self.call_id = call_id
        self._collected_bytes = 0
        self._started = (0, b"")

    @property
    def peer(self) -> str:
        """``ip:port`` of the provider; empty on a Unix socket."""
        return self.calls.peer

    def read(self, head: KnownHead, content: memoryview) -> None:
        """Set the request from ``head`` and ``content``.

        Raises:
            WireError: there is no request in ``content``.
        """
        own, self.body, usual = call_frames.split(content)
        self.method, self.target, self.headers = head.method, head.target, head.headers + own
        if usual:
            self.known_head, self.own_headers = head, own

    def _respond(
        self, status: int, body: Body, content_type: str, headers: Headers, length: int | None
    ) -> None:
        del length  # HEAD is never sent in a bundle
        lines = headers if type(headers) is bytes else encoded(headers)
        if self.added:
            lines += encoded(self.added)
        self._answer(status, _answer_head(content_type, lines), body)

    def start(self, status: int, headers: Headers = ()) -> None:
        """Start a response, which is sent as a whole at its end."""
        self._streaming = True
        lines = encoded(headers) + encoded(self.added)
        self._started = status, b"\n" + lines.replace(b"\r\n", b"\n")

    def write(self, chunk: bytes) -> None:
        """Add to the response.

        If it becomes too large, or memory is short, the caller gets an error instead.
        """
        if self.answered or self.gone:
            return
        self._held.append(chunk)
        self._collected_bytes += len(chunk)
        self.held_bytes += len(chunk)
        server = self.calls.server
        server.held_bytes += len(chunk)
        if self._collected_bytes > _COLLECTED_BYTES:
            self.calls.refuse(self, FunctionFault(_TOO_LARGE))
        elif server.held_bytes > server.most_held_bytes and not server.drop_stalled(STALLED_S):
            self.calls.refuse(self, Overloaded(TOO_MUCH_HELD, _AGAIN_S))

    def end(self) -> None:
        """Send the collected response."""
        self._answer(*self._started, b"".join(self._held))

    def fail_instead(self, error: CarpoolError) -> None:
        """Report ``error`` instead of the response that was started, of which nothing was sent."""
        self._streaming = False
        self.fail(error)

    def abort(self) -> None:
        """Report to the caller that the call was aborted without a response."""
        self._answer(call_frames.BROKEN_OFF, b"\n", b"")

    def _answer(self, status: int, head: bytes, body: bytes | memoryview) -> None:
        if self.answered:
            return
        self.answered = True
        self.on_gone = None
        self._held = []
        if not self.gone:
            self.calls.answer_call(self, status, head, body)
