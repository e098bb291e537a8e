"""The server edge: turns bytes of many connections into requests, and sends the responses.

Theory of operation
-------------------
One `Connection` per socket feeds a `Reader`. When a request is complete, its `Exchange` is passed
to the application in a plain call on the event loop; the application may respond at any time, from
any later callback. Requests pipelined on one connection are handed over some at a time, without
waiting for responses, and their responses are put back into order.

Memory: everything read and not yet answered, and everything written and not fully taken by
its client, counts towards one limit. Above it, clients that do not read are dropped, the longest
stalled first, and uploads are refused; a client still has room for one small request. So hostile
clients can make the server hold `Limits.held_bytes`, 16 KiB for each connection, and the heads of
`known_heads`, a few megabytes at most; nothing they send makes it more. Memory freed after a peak
is returned to the system (`carpool.memory`).

Capacity: if there is none for another connection, the one that has been idle for longest is closed,
at no cost before: `connections` is ordered by last responses, and only its first few are checked.
One whose client has sent data is not idle, even if none of it was read yet: closing its
socket would answer the request with a reset. For the same reason a process that has been stopped
for a while first reads what has arrived meanwhile, and enforces the time limits later.

Rules: there is no task and no timer per request (one sweep a second enforces every time limit);
a response is one write; a client that closes its side has left, half-closed or not, and its
requests are cancelled; a request whose framing is ambiguous is refused and its connection closed.
This module knows nothing of batches, functions or routes.
"""

from __future__ import annotations

import array
import asyncio
import fcntl
import functools
import logging
import math
import resource
import termios
import time
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from wsgiref.handlers import format_date_time

from carpool import address as addresses
from carpool import errors
from carpool.http.connection import Connection
from carpool.http.exchange import Exchange
from carpool.http.known_heads import KnownHeads
from carpool.http.limits import Limits, Refused
from carpool.memory import Trimmer
from carpool.rate_limited_log import RateLimit

if TYPE_CHECKING:
    from collections.abc import Callable

    from carpool.http.backlog import Backlog
    from carpool.http.intake import Intake
    from carpool.http.owner import Overload

__all__ = ["Application", "Exchange", "Limits", "Server", "serve"]

log = logging.getLogger(__name__)

_MOST_TURNED_AWAY = 64  # most connections that are being refused at a time
_LOOKS = 64  # most connections that are checked for one to close when a new one arrives
_AGAIN_S = 1
_SWEEP_S = 1.0
_READING_S = 0.01
_CLOSED = {
    "idle": "%d idle connections were closed: all %d connections were in use",
    "unread": "%d clients that did not read were disconnected: at most %d bytes are buffered",
    "crowd": "%d connections were refused: all %d are busy",
}

Application: TypeAlias = "Callable[[Exchange], None]"


class Server:
    """A listening socket and its connections; created by `serve`.

    Attributes:
        closed: Number of connections closed because of a limit, by reason: ``idle`` to make room,
            ``unread`` if the client did not read, ``crowd`` if all others were busy.
    """

    def __init__(self, app: Application, limits: Limits, loop: asyncio.AbstractEventLoop) -> None:
        self._app = app
        self._listener: asyncio.Server | None = None
        self._unix_path = ""
        self.quiet: asyncio.Future[None] | None = None
        self._awaited: Connection | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._swept = math.inf
        self._late = False
        self.closed = dict.fromkeys(_CLOSED, 0)
        self._says = {reason: RateLimit() for reason in _CLOSED}
        self._connections_max, self._most_turned_away = _places(limits.connections)
        self.limits = limits
        self.heads = KnownHeads()
        self.loop = loop
        self.now = loop.time
        self.connections: OrderedDict[Connection, None] = OrderedDict()
        self.behind: OrderedDict[Connection, Backlog] = OrderedDict()
        self._turned_away: set[Connection] = set()
        self._trimmer = Trimmer()
        self.held_bytes = 0
        self.most_held_bytes = max(limits.held_bytes, 2 * limits.body_bytes)
        self.closing = False
        self.intake: Intake | None = None
        self.overload: Overload | None = None
        self.date = b""
        self.address = ""

    async def listen(self, listen: str) -> None:
        """Bind to ``listen`` and start accepting connections."""
        where = addresses.parse(listen)
        if where.path:
            _remove_socket(where.path)
            self._listener = await self.loop.create_unix_server(
                lambda: Connection(self), where.path, backlog=1024
            )
            self._unix_path = where.path
            self.address = str(where)
        else:
            self._listener = await self.loop.create_server(
                lambda: Connection(self), where.host or None, where.port, backlog=1024
            )
            host, port = self._listener.sockets[0].getsockname()[:2]
            self.address = str(addresses.Address(host, port, ""))
        self._tick()

    def add(self, connection: Connection) -> Refused | None:
        """Register a new connection; return the refusal if it is not admitted.

        If too many refused connections are open, it is closed without a response.
        """
        if len(self.connections) < self._connections_max or self._make_room():
            self.connections[connection] = None
            return None
        self._turned_away.add(connection)
        self._count_closed("crowd", self._connections_max)
        if len(self._turned_away) > self._most_turned_away:
            connection.abort()
        return Refused(503, f"more than {self._connections_max} busy connections", _AGAIN_S)

    def _make_room(self) -> bool:
        """Close the longest idle connection; return False if the oldest ones are all busy."""
        now, connections = self.now(), self.connections
        for _ in range(min(_LOOKS, len(connections))):
            oldest = next(iter(connections))
            if oldest.idle(now) and not self.asks(oldest):
                del connections[oldest]
                oldest.abort()
                self._count_closed("idle", self._connections_max)
                return True
            connections.move_to_end(oldest)
        return False

    def asks(self, connection: Connection) -> bool:
        """Return whether its client has sent data that is not read yet but will be."""
        return connection not in self.behind and _has_unread(connection.transport)

    def drop_stalled(self, stalled_s: float = 0.0) -> bool:
        """Drop clients that do not read until memory suffices; return whether it does.

        Args:
            stalled_s: Clients that have stalled for less than this are not dropped.
        """
        while self.held_bytes > self.most_held_bytes:
            longest = self._longest_stalled(stalled_s)
            if longest is None:
                return False
            longest.abort()
            self._count_closed("unread", self.most_held_bytes)
        return True

    def _longest_stalled(self, stalled_s: float) -> Connection | None:
        """Return the connection to drop next; None if there is none that has stalled so long."""
        now = self.now()
        for connection, backlog in self.behind.items():
            waited_s = now - backlog.stalled_since
            if waited_s < stalled_s:
                return None  # and those that follow have stalled for less
            if waited_s >= connection.patience_s:
                return connection
        return None

    def _count_closed(self, reason: str, limit: int) -> None:
        self.closed[reason] += 1
        if times := self._says[reason].due(self.now()):
            log.warning(_CLOSED[reason], times, limit)

    def remove(self, connection: Connection) -> None:
        """Remove a connection that has ended."""
        self.connections.pop(connection, None)
        self._turned_away.discard(connection)
        self.connection_changed()

    def dispatch(self, exchange: Exchange) -> None:
        """Pass a whole request to the application; unexpected exceptions give status 500."""
        try:
            self._app(exchange)
        except errors.CarpoolError as error:
            exchange.fail(error)
        except Exception:
            log.exception("the application failed on %s %s", exchange.method, exchange.target)
            exchange.reply(500, errors.body("internal error"))

    def retire(self) -> None:
        """Close each connection after its pending responses, or after the next one.

        Clients then reconnect elsewhere between two requests: closing an idle connection may cross
        with a request, and its client could not know whether that was processed.
        """
        self.closing = True
        for connection in self.connections:
            connection.retire()

    def close(self) -> None:
        """Accept no new connections; existing ones close once their requests are answered.

        This includes requests that have begun to arrive, whether or not any of them was read yet.
        """
        self.closing = True
        if self._listener:
            self._listener.close()
        if self.intake:
            self.intake.stop()
        for connection in tuple(self.connections):
            connection.close_when_idle()

    async def drain(self, timeout_s: float) -> bool:
        """Wait until all requests are answered and the responses are taken by the clients.

        That is after `close`; after `retire` alone, until all clients have left.

        Returns:
            False if ``timeout_s`` was not enough.
        """
        end = self.now() + timeout_s
        while self._busy():
            self.quiet = self.loop.create_future()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(end):
                    await self.quiet
            if self.now() >= end:
                return not self._busy()
        return True

    async def stop(self) -> None:
        """Close all connections at once."""
        self.close()
        if self._sweep:
            self._sweep.cancel()
        for connection in (*self.connections, *self._turned_away):
            connection.abort()
        if self._unix_path:
            _remove_socket(self._unix_path)
        await asyncio.sleep(0)

    def connection_changed(self) -> None:
        """End a drain if no connection is busy any more."""
        if self.quiet and not self.quiet.done() and not self._busy():
            self.quiet.set_result(None)

    def _busy(self) -> bool:
        awaited = self._awaited  # usually still busy, so that the others need not be checked
        if awaited is None or awaited not in self.connections or not awaited.unfinished:
            self._awaited = next((each for each in self.connections if each.unfinished), None)
        return self._awaited is not None

    def _tick(self) -> None:
        self.date = f"date: {format_date_time(time.time())}\r\n".encode()
        now = self.now()
        late = now > self._swept + 2 * _SWEEP_S and not self._late
        self._swept, self._late = now, late
        if late:  # this process was stopped: what came meanwhile is read first
            self._sweep = self.loop.call_later(_READING_S, self._tick)
            return
        for connection in (*self.connections, *self._turned_away):
            connection.expire(now)
        self._trimmer.look(self.held_bytes)
        self._sweep = self.loop.call_later(_SWEEP_S, self._tick)


def _has_unread(transport: asyncio.Transport) -> bool:
    """Return whether the client has sent data that was not read yet."""
    socket = transport.get_extra_info("socket")
    if socket is None:
        return False
    size = array.array("i", [0])
    fcntl.ioctl(socket.fileno(), termios.FIONREAD, size)
    return size[0] > 0


def _allow_open_files() -> None:
    """Raise the limit of open files to the hard limit, as the usual one is far too low."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _places(wanted: int) -> tuple[int, int]:
    """Return how many connections may be open, and how many more may be refused at a time.

    A process that cannot open another file cannot even refuse; other parts need files as well.
    """
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return wanted, _MOST_TURNED_AWAY
    reserve = min(256, files // 2)
    capacity = min(wanted, files - reserve)
    if capacity < wanted:
        _say_fewer(capacity, files)
    return capacity, min(_MOST_TURNED_AWAY, reserve // 4)


@functools.cache
def _say_fewer(capacity: int, files: int) -> None:
    """Log the limit, once in a process with several servers."""
    log.info("at most %d connections, because the process may open %d files", capacity, files)


def _remove_socket(path: str) -> None:
    """Remove a Unix socket; a file of another kind is left alone."""
    where = Path(path)
    if where.is_socket():
        where.unlink(missing_ok=True)


async def serve(app: Application, *, listen: str, limits: Limits | None = None) -> Server:
    """Listen on ``listen`` and call ``app`` with every whole request.

    Raises the process's limit of open files to its hard limit.

    Args:
        app: Called on the event loop; responds now or later through the exchange. An exception
            is reported with its status, or 500.
        listen: ``HOST:PORT`` (port 0: chosen by the system) or ``unix:PATH``.
        limits: Limits of the server; defaults if None.

    Raises:
        ConfigError: ``listen`` is not an address.
        OSError: the address cannot be bound.
    """
    _allow_open_files()
    server = Server(app, limits or Limits(), asyncio.get_running_loop())
    await server.listen(listen)
    return server
