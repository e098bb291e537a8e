"""One socket of the server edge: order of pipelined responses, back-pressure, time limits, memory.

Rules: there is no timer per connection (`expire` is called from one sweep); a client that closes
its side has left, half-closed or not; nothing is read from a client that does not read responses;
whatever is held for a client, in either direction, is counted in `Owner.held_bytes`, from the
first byte that its socket did not take.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from carpool import errors
from carpool.errors import BadRequest, Overloaded
from carpool.http.backlog import Backlog
from carpool.http.limits import (
    CALL_BYTES_HELD,
    HEADER_BYTES_HELD,
    STALLED_S,
    TOO_MUCH_HELD,
    Refused,
)
from carpool.http.reader import Reader

if TYPE_CHECKING:
    from carpool.http.exchange import Successor
    from carpool.http.http_exchange import HttpExchange
    from carpool.http.owner import Owner

__all__ = ["Connection"]

_PIPELINE = 64  # most requests of one connection that the application has at once
_LINGER_S = 2.0  # a refused client may still be sending; closing at once could destroy the answer
_SMALL_BYTES = 16 * 1024  # one request of this size is served however full memory is
_SLOWEST_BYTES_S = 1024  # an upload that is slower is no progress
_AGAIN_S = 1


class Connection(asyncio.Protocol):
    """One socket.

    Attributes:
        exchanges: Unanswered requests, in order.
        patience_s: How long its client may leave data unread while memory is short.
    """

    patience_s = 0.0

    __slots__ = (
        "_active_since",
        "_backlog",
        "_closing",
        "_handed_over",
        "_handing_over",
        "_leaving",
        "_limits",
        "_lingering",
        "_paused",
        "_peer",
        "_reader",
        "_unclaimed",
        "exchanges",
        "server",
        "transport",
    )

    transport: asyncio.Transport

    def __init__(self, server: Owner[Connection]) -> None:
        self.server = server
        self.exchanges: deque[HttpExchange] = deque()
        self._limits = server.limits
        self._reader = Reader(self, server.limits, server.heads)
        self._closing = False  # no further request is read
        self._leaving = False  # no further answer is written
        self._lingering = False  # the client was refused; what it still sends is dropped
        self._paused = False
        self._handing_over = False
        self._handed_over = 0  # how many of the exchanges the application has
        self._unclaimed = 0  # bytes that were read and belong to no whole request
        self._backlog: Backlog | None = None  # there is one while the client is behind
        self._active_since = server.now()
        self._peer: str | None = None  # read on demand, which takes a system call

    @property
    def peer(self) -> str:
        """``ip:port`` of the client; empty on a Unix socket."""
        if self._peer is None:
            name = self.transport.get_extra_info("peername")
            self._peer = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else ""
        return self._peer

    # -- asyncio ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection of a new client, or refuse it."""
        self.transport = transport  # type: ignore[assignment]
        self.transport.set_write_buffer_limits(0)  # report every byte that the socket does not take
        refused = self.server.add(self)
        if refused and not self._closing:
            self._refuse(refused)

    def data_received(self, data: bytes) -> None:
        """Read requests; refuse malformed ones."""
        if self._closing:
            return
        server, reader = self.server, self._reader
        self._unclaimed += len(data)
        server.held_bytes += len(data)
        intake = server.intake
        if intake is not None and intake.parking and intake.park(self, data):
            return
        begins = not reader.partial
        try:
            reader.feed(data)
            if self._unclaimed:
                self._weigh(begins=begins)
        except Refused as refused:
            if not self._closing:
                self._refuse(refused)

    def unpark(self, data: bytes) -> None:
        """Read requests from ``data``, which was parked."""
        self._unclaimed -= len(data)
        self.server.held_bytes -= len(data)
        self.data_received(data)

    def answer(self, data: bytes, answer: bytes) -> None:
        """Send ``answer`` as the response to the single parked request in ``data``."""
        server = self.server
        self._unclaimed -= len(data)
        server.held_bytes -= len(data)
        self._active_since = server.now()
        server.connections.move_to_end(self)
        self.write(answer)

    def eof_received(self) -> bool:
        """Cancel all requests, as the client has closed its side."""
        self._depart()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel unanswered requests."""
        del exc
        self._depart()
        self._stop_reading()
        self._catch_up()
        self.server.remove(self)

    def pause_writing(self) -> None:
        """Start a backlog, as the client reads more slowly than responses are written."""
        backlog = Backlog(self.server, self.transport)
        self._backlog = self.server.behind[self] = backlog
        self._active_since = backlog.stalled_since
        self._throttle()

    def resume_writing(self) -> None:
        """Continue with waiting requests, as the client has taken all data."""
        self._catch_up()
        self._hand_over()

    async def writable(self) -> None:
        """Wait until the client has taken all data."""
        if self._backlog:
            await self._backlog.taken()

    def switch(self, exchange: HttpExchange, answer: bytes, protocol: Successor) -> None:
        """Respond to the only exchange and pass the socket to another protocol.

        Raises:
            BadRequest: it is not the only exchange.
            Overloaded: the server is closing.
        """
        server = self.server
        if server.closing:
            msg = "the server is closing"
            raise Overloaded(msg, _AGAIN_S)
        if len(self.exchanges) > 1 or self._backlog is not None or self._closing:
            msg = "no other request may follow one that upgrades the connection"
            raise BadRequest(msg)
        server.held_bytes -= exchange.held_bytes
        self.exchanges.clear()
        exchange.answered = exchange.gone = True
        self._closing = self._leaving = True
        del server.connections[self]
        successor = protocol(server, self.transport)
        server.connections[successor] = None
        self.transport.set_protocol(successor)
        self.transport.write(answer)
        server.loop.call_soon(self._stop_reading)  # outside the reader that called this

    def _stop_reading(self) -> None:
        """Release the reader, and the memory of data that belongs to no whole request."""
        self._reader.close()
        self.server.held_bytes -= self._unclaimed
        self._unclaimed = 0

    def _catch_up(self) -> None:
        """End the backlog, as the client has taken all data or never will."""
        backlog, self._backlog = self._backlog, None
        if backlog:
            del self.server.behind[self]
            backlog.end()
            self.server.connection_changed()

    # -- requests ---------------------------------------------------------------------------

    def accept(self, exchange: HttpExchange) -> None:
        """Take a whole request, and pass it to the application at once if its turn has come.

        Raises:
            Refused: there is not enough memory for it.
        """
        if self._closing:
            return
        server = self.server
        if server.held_bytes > server.most_held_bytes:
            self._check_memory()
        size_bytes = CALL_BYTES_HELD + HEADER_BYTES_HELD * len(exchange.headers)
        server.held_bytes += size_bytes
        exchange.held_bytes = size_bytes + self._unclaimed
        self._unclaimed = 0
        exchange.received = self._active_since = server.now()
        if server.closing:
            exchange.keep_alive = False
        if not exchange.keep_alive:
            self._closing = True
        exchanges = self.exchanges
        exchanges.append(exchange)
        if len(exchanges) == 1 and self._backlog is None:
            self._handed_over = 1
            server.dispatch(exchange)
        elif not self._handing_over:
            self._hand_over()

    def between_requests(self) -> bool:
        """Return whether no request is unanswered or partial, and there is memory for parking."""
        server = self.server
        settled = not (self.exchanges or self._reader.partial or self._backlog)
        return settled and not server.closing and server.held_bytes <= server.most_held_bytes

    def invite(self) -> None:
        """Send 100 Continue to a client that waits for it, once nothing else is unanswered."""
        if not self.exchanges:
            self._reader.expects = False
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _schedule_hand_over(self) -> None:
        """Schedule the next hand-over, as the application is still in its last response."""
        if self._handed_over < len(self.exchanges) and not self._handing_over:
            self._handing_over = True
            self.server.loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        """Pass as many requests to the application as it may have now."""
        exchanges = self.exchanges
        self._handing_over = True
        while (
            self._handed_over < len(exchanges)
            and self._handed_over < _PIPELINE
            and not self._backlog
        ):
            exchange = exchanges[self._handed_over]
            self._handed_over += 1
            if not exchange.answered:  # refused ones are answered already
                self.server.dispatch(exchange)
        self._handing_over = False
        if self._paused or self._handed_over < len(exchanges):
            self._throttle()

    def _throttle(self) -> None:
        """Pause reading while more requests are waiting than may be handed over."""
        stop = self._backlog is not None or len(self.exchanges) > self._handed_over
        if stop == self._paused:
            return
        self._paused = stop
        if stop:
            self.transport.pause_reading()
        else:
            self._active_since = self.server.now()
            self.transport.resume_reading()

    def _weigh(self, *, begins: bool) -> None:
        """Account for data that belongs to no whole request yet."""
        if not self._reader.partial:  # line breaks between requests
            self.server.held_bytes -= self._unclaimed
            self._unclaimed = 0
            if self.server.closing:
                self.close_when_idle()
        elif begins:
            self._active_since = self.server.now()
        if self.server.held_bytes > self.server.most_held_bytes:
            self._check_memory()

    def _check_memory(self) -> None:
        enough = self.server.drop_stalled(STALLED_S)
        if not enough and (self.exchanges or self._unclaimed > _SMALL_BYTES):
            raise Refused(503, TOO_MUCH_HELD, _AGAIN_S)

    def _refuse(self, refused: Refused) -> None:
        """Refuse a request that is not read further, then close, as its framing is lost."""
        self._closing = self._lingering = True
        exchange = self._reader.take()
        exchange.keep_alive = False
        exchange.held_bytes, self._unclaimed = self._unclaimed, 0
        self.exchanges.append(exchange)
        exchange.reply(refused.status, errors.body(refused), headers=refused.headers)

    # -- answers ----------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send a part of the first exchange's response."""
        self.transport.write(data)
        if self._backlog is not None:
            self._backlog.add(len(data))

    def finish(self, data: bytes) -> None:
        """Send the end of the first exchange's response and continue with the next ones."""
        exchanges, server = self.exchanges, self.server
        while True:
            done = exchanges.popleft()
            server.held_bytes -= done.held_bytes
            if self._handed_over:
                self._handed_over -= 1
            self.transport.write(data)
            if self._backlog is not None:
                self._backlog.add(len(data))
            if not done.keep_alive:
                self._leave()
                return
            if not exchanges:
                break
            data = b"".join(exchanges[0].release_held())
            if not exchanges[0].answered:
                if data:
                    self.write(data)
                self._schedule_hand_over()
                return
        self._active_since = server.now()
        server.connections.move_to_end(self)
        if self._reader.expects:
            self.invite()

    @property
    def unfinished(self) -> bool:
        """Whether a request may still be answered, or a response is not taken by its client."""
        return not self._leaving or self._backlog is not None

    def retire(self) -> None:
        """Close the connection after the last pending response."""
        if self.exchanges:
            self.exchanges[-1].keep_alive = False
            self._closing = True

    def close_when_idle(self) -> None:
        """Close now if there are no requests, else after the last pending response."""
        self.retire()
        partial = self._reader.partial or self._unclaimed
        if not (self.exchanges or partial or self.server.asks(self)):
            self._leave()

    def abort(self) -> None:
        """Close at once, even if requests are unanswered."""
        self._closing = self._leaving = True
        if self.server.intake is not None:
            self.server.intake.gone(self)
        self.transport.abort()
        self._catch_up()

    def idle(self, now: float) -> bool:
        """Return whether it may be closed for another: no request, or one without progress."""
        if self.exchanges:
            return False
        if self._backlog:
            return now - self._backlog.stalled_since > STALLED_S
        if not self._reader.partial:
            return not self._unclaimed  # or a request is parked
        waited_s = now - self._active_since
        return waited_s > STALLED_S and self._unclaimed < waited_s * _SLOWEST_BYTES_S

    def expire(self, now: float) -> None:
        """Enforce the time limits; called about once a second."""
        limits = self._limits
        waited_s = now - self._active_since
        if self._backlog and self._backlog.moves(now):
            self.server.behind.move_to_end(self)
        if self._leaving or self._backlog:
            patience_s = _LINGER_S if self._leaving and self._lingering else limits.read_s
            if waited_s > patience_s:
                self.abort()
        elif self._reader.partial and not self._closing:
            kept_waiting = self._paused or (self._reader.expects and self.exchanges)
            if waited_s > limits.read_s and not kept_waiting:
                self._refuse(Refused(408, f"the request did not arrive within {limits.read_s:g} s"))
        elif not self.exchanges and waited_s > limits.idle_s:
            self._leave()

    def _leave(self) -> None:
        """Close once all written data has been sent."""
        if self._leaving:
            return
        self._depart()
        if self._lingering and self.transport.can_write_eof():
            self._throttle()
            self.transport.write_eof()
        else:
            self.transport.close()

    def _depart(self) -> None:
        """Cancel all exchanges, as no response is awaited any more."""
        self._closing = self._leaving = True
        self._active_since = self.server.now()
        self._handed_over = 0
        if self.server.intake is not None:
            self.server.intake.gone(self)
        gone = tuple(self.exchanges)
        self.exchanges.clear()
        self.server.connection_changed()
        for exchange in gone:
            self.server.held_bytes -= exchange.held_bytes
            exchange.gone = True
        for exchange in gone:
            exchange.tell_gone()
