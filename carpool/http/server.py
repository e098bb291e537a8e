"""The server edge: bytes of many connections in, whole requests to an application, answers out.

Theory of operation
-------------------
One `Connection` per socket feeds httptools. When a request is complete, its `Exchange` goes to
the application in a plain call on the event loop; the application answers whenever it likes, from
any later callback. Requests pipelined on one connection are handed over at once, and their answers
are put back into order here.

Rules: there is no task and no timer per request (one sweep a second enforces every time limit);
an answer is one write; a client that closes its side has gone, half-closed or not, and what it
asked for is cancelled; a request whose framing is ambiguous is refused and its connection closed.
This file knows nothing of batches, functions or routes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from email.utils import formatdate
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from carpool import address as addresses
from carpool import errors
from carpool.http.connection import Connection, Limits
from carpool.http.exchange import Exchange

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Application", "Exchange", "Limits", "Server", "serve"]

log = logging.getLogger(__name__)

Application: TypeAlias = "Callable[[Exchange], None]"


class Server:
    """A listening socket and its connections; made by `serve`."""

    def __init__(self, app: Application, limits: Limits, loop: asyncio.AbstractEventLoop) -> None:
        self._app = app
        self._listener: asyncio.Server | None = None
        self._unix_path = ""
        self._quiet: asyncio.Future[None] | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self.limits = limits
        self.loop = loop
        self.now = loop.time
        self.connections: set[Connection] = set()
        self.closing = False
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

    def dispatch(self, exchange: Exchange) -> None:
        """Hand a whole request to the application; its exceptions are answered with 500."""
        try:
            self._app(exchange)
        except errors.CarpoolError as error:
            exchange.fail(error)
        except Exception:
            log.exception("the application failed on %s %s", exchange.method, exchange.target)
            exchange.reply(500, errors.body("internal error"))

    def close(self) -> None:
        """Stop accepting; connections close when their answers are out."""
        self.closing = True
        if self._listener:
            self._listener.close()
        for connection in tuple(self.connections):
            connection.close_when_idle()

    async def drain(self, timeout_s: float) -> bool:
        """Wait until every accepted request is answered; False if ``timeout_s`` was not enough."""
        end = self.now() + timeout_s
        while self._busy():
            self._quiet = self.loop.create_future()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(end):
                    await self._quiet
            if self.now() >= end:
                return not self._busy()
        return True

    async def stop(self) -> None:
        """Close everything now."""
        self.close()
        if self._sweep:
            self._sweep.cancel()
        for connection in tuple(self.connections):
            connection.transport.abort()
        if self._unix_path:
            _remove_socket(self._unix_path)
        await asyncio.sleep(0)

    def noticed(self) -> None:
        """A connection became idle or went away: a drain may be over."""
        if self._quiet and not self._quiet.done() and not self._busy():
            self._quiet.set_result(None)

    def _busy(self) -> bool:
        return any(connection.exchanges for connection in self.connections)

    def _tick(self) -> None:
        self.date = b"date: %b\r\n" % formatdate(time.time(), usegmt=True).encode()
        now = self.now()
        for connection in tuple(self.connections):
            connection.expire(now)
        self._sweep = self.loop.call_later(1.0, self._tick)


def _remove_socket(path: str) -> None:
    """Make way for a Unix socket, or clear it away; a file of another kind is left alone."""
    where = Path(path)
    if where.is_socket():
        where.unlink(missing_ok=True)


async def serve(app: Application, *, listen: str, limits: Limits | None = None) -> Server:
    """Listen on ``listen`` and call ``app`` with every whole request.

    Args:
        app: called on the event loop; answers now or later through the exchange. An exception
            is answered with its status, or 500.
        listen: ``HOST:PORT`` (port 0: chosen by the system) or ``unix:PATH``.
        limits: what is accepted.

    Raises:
        ConfigError: ``listen`` is not an address.
        OSError: the address cannot be bound.
    """
    server = Server(app, limits or Limits(), asyncio.get_running_loop())
    await server.listen(listen)
    return server
