"""The server edge: bytes of many connections in, whole requests to an application, answers out.

Theory of operation
-------------------
One `Connection` per socket feeds a `Reader`. When a request is complete, its `Exchange` goes to
the application in a plain call on the event loop; the application answers whenever it likes, from
any later callback. Requests pipelined on one connection are handed over some at a time, without
waiting for answers, and their answers are put back into order.

Memory: whatever is read and not yet answered, and whatever was written and is not wholly taken by
its client, counts towards one limit. Above it, clients that do not read are dropped, the longest
stalled first, and uploads are refused; a client still has room for one small request. So hostile
clients can make the server hold `Limits.held_bytes`, 16 KiB for each connection, and the heads of
`known_heads`, a few megabytes at most; nothing they send makes it more. What was freed after a peak
is given back to the system (`carpool.memory`).

Room: where no further connection has room, that which has been idle for longest makes way, at no
cost before: `connections` is ordered by last answers, and a newcomer looks at its first few. One
whose client has begun to ask is not idle, though nothing may have been read of it yet: to close its
socket would answer the request with a reset. For the same reason a process that has been stopped
for a while first reads what came meanwhile, and enforces the time limits later.

Rules: there is no task and no timer per request (one sweep a second enforces every time limit);
an answer is one write; a client that closes its side has gone, half-closed or not, and what it
asked for is cancelled; a request whose framing is ambiguous is refused and its connection closed.
This file knows nothing of batches, functions or routes.
"""

from __future__ import annotations

import array
import asyncio
import fcntl
import logging
import math
import resource
import termios
import time
from collections import OrderedDict
from contextlib import suppress
from email.utils import formatdate
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

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

__all__ = ["Application", "Exchange", "Limits", "Server", "serve"]

log = logging.getLogger(__name__)

_MOST_TURNED_AWAY = 64  # most connections that are being told that there are too many
_LOOKS = 64  # most connections that a newcomer looks at for one to make room
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
    """A listening socket and its connections; made by `serve`.

    Attributes:
        closed: how many connections were closed because a limit was reached, by reason: ``idle`` to
            make room, ``unread`` as the client did not read, ``crowd`` where all were at work.
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
        self._room, self._most_turned_away = _places(limits.connections)
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
        self.date = b""
        self.address = ""

    async def listen(self, listen: str) -> None:
        """Bind to ``listen`` and start accepting."""
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
        """Count a new connection in; or the reason why not, unless too many wait to hear it."""
        if len(self.connections) < self._room or self._make_room():
            self.connections[connection] = None
            return None
        self._turned_away.add(connection)
        self._count_closed("crowd", self._room)
        if len(self._turned_away) > self._most_turned_away:
            connection.abort()
        return Refused(503, f"more than {self._room} busy connections", _AGAIN_S)

    def _make_room(self) -> bool:
        """Close the connection that has been idle for longest; False if the oldest all work."""
        now, connections = self.now(), self.connections
        for _ in range(min(_LOOKS, len(connections))):
            oldest = next(iter(connections))
            if oldest.idle(now) and not self.asks(oldest):
                del connections[oldest]
                oldest.abort()
                self._count_closed("idle", self._room)
                return True
            connections.move_to_end(oldest)
        return False

    def asks(self, connection: Connection) -> bool:
        """Whether its client has sent what was not read yet, but is about to be."""
        return connection not in self.behind and _has_unread(connection.transport)

    def drop_stalled(self, stalled_s: float = 0.0) -> bool:
        """Drop clients that do not read until memory suffices; whether it does.

        Args:
            stalled_s: a client that has stalled for less is not dropped.
        """
        before = self.now() - stalled_s
        while self.held_bytes > self.most_held_bytes:
            longest = next(iter(self.behind), None)
            if longest is None or self.behind[longest].stalled_since > before:
                return False
            longest.abort()
            self._count_closed("unread", self.most_held_bytes)
        return True

    def _count_closed(self, reason: str, limit: int) -> None:
        self.closed[reason] += 1
        if times := self._says[reason].due(self.now()):
            log.warning(_CLOSED[reason], times, limit)

    def remove(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        self.connections.pop(connection, None)
        self._turned_away.discard(connection)
        self.connection_changed()

    def dispatch(self, exchange: Exchange) -> None:
        """Hand a whole request to the application; its exceptions are answered with 500."""
        try:
            self._app(exchange)
        except errors.CarpoolError as error:
            exchange.fail(error)
        except Exception:
            log.exception("the application failed on %s %s", exchange.method, exchange.target)
            exchange.reply(500, errors.body("internal error"))

    def retire(self) -> None:
        """Have each answer say from now on that it is the last of its connection.

        So clients go elsewhere between two requests: to close a connection that is idle may cross
        with a request, of which its client cannot know then whether it was acted upon.
        """
        self.closing = True
        for connection in self.connections:
            connection.retire()

    def close(self) -> None:
        """Take no new connections; those there are close once what was asked on them is answered.

        A request that has begun to arrive counts as asked, whether or not any of it was read yet.
        """
        self.closing = True
        if self._listener:
            self._listener.close()
        if self.intake:
            self.intake.stop()
        for connection in tuple(self.connections):
            connection.close_when_idle()

    async def drain(self, timeout_s: float) -> bool:
        """Wait until all that was asked is answered, and the answers are taken.

        That is after `close`; after `retire` alone, until all clients have gone.

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
        """Close everything now."""
        self.close()
        if self._sweep:
            self._sweep.cancel()
        for connection in (*self.connections, *self._turned_away):
            connection.abort()
        if self._unix_path:
            _remove_socket(self._unix_path)
        await asyncio.sleep(0)

    def connection_changed(self) -> None:
        """A connection has nothing left to answer: a drain may be over."""
        if self.quiet and not self.quiet.done() and not self._busy():
            self.quiet.set_result(None)

    def _busy(self) -> bool:
        awaited = self._awaited  # mostly still so: all are looked at only once it has ended
        if awaited is None or awaited not in self.connections or not awaited.unfinished:
            self._awaited = next((each for each in self.connections if each.unfinished), None)
        return self._awaited is not None

    def _tick(self) -> None:
        self.date = b"date: %b\r\n" % formatdate(time.time(), usegmt=True).encode()
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
    """Whether the client has sent what was not read yet."""
    socket = transport.get_extra_info("socket")
    if socket is None:
        return False
    size = array.array("i", [0])
    fcntl.ioctl(socket.fileno(), termios.FIONREAD, size)
    return size[0] > 0


def _allow_open_files() -> None:
    """As many connections as the system lets this process have; the usual limit is far below."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _places(wanted: int) -> tuple[int, int]:
    """How many connections may be open, and how many more may be told that there are too many.

    A process that cannot open another file cannot even refuse; others need files as well.
    """
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return wanted, _MOST_TURNED_AWAY
    reserve = min(256, files // 2)
    room = min(wanted, files - reserve)
    if room < wanted:
        log.info("at most %d connections, because the process may open %d files", room, files)
    return room, min(_MOST_TURNED_AWAY, reserve // 4)


def _remove_socket(path: str) -> None:
    """Make way for a Unix socket, or clear it away; a file of another kind is left alone."""
    where = Path(path)
    if where.is_socket():
        where.unlink(missing_ok=True)


async def serve(app: Application, *, listen: str, limits: Limits | None = None) -> Server:
    """Listen on ``listen`` and call ``app`` with every whole request.

    The process may open as many files from then on as the system lets it.

    Args:
        app: called on the event loop; answers now or later through the exchange. An exception
            is answered with its status, or 500.
        listen: ``HOST:PORT`` (port 0: chosen by the system) or ``unix:PATH``.
        limits: what is accepted.

    Raises:
        ConfigError: ``listen`` is not an address.
        OSError: the address cannot be bound.
    """
    _allow_open_files()
    server = Server(app, limits or Limits(), asyncio.get_running_loop())
    await server.listen(listen)
    return server
