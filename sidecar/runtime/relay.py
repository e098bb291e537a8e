"""Whole batches for this sidecar's own handler, formed by the sidecar in front of several.

They are passed on as they are, past the queue: who formed them has decided. An answer goes back as
it is, too. Where the handler breaks off, the connection is broken off, so that whoever waits sees
what he would have seen at the handler itself.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from carpool import wire
from carpool.errors import CarpoolError

if TYPE_CHECKING:
    from carpool.http.server import Exchange
    from sidecar.runtime.instances import Instance

__all__ = ["Relay"]

log = logging.getLogger(__name__)

_BATCH = wire.CONTENT_TYPE.encode()
_HEADERS = (("content-type", wire.CONTENT_TYPE),)
_NOT_PASSED = frozenset(
    b"content-type content-length transfer-encoding connection keep-alive date".split()
)


class Relay:
    """Passes batches on.

    Args:
        local: The instance beside this sidecar.
        exec_timeout_s: How long one batch may take.
    """

    def __init__(self, local: Instance, exec_timeout_s: float) -> None:
        self._local = local
        self._timeout_s = exec_timeout_s
        self._tasks: set[asyncio.Task[None]] = set()

    def takes(self, exchange: Exchange) -> bool:
        """Whether ``exchange`` is a whole batch; if so it is on its way."""
        if exchange.target != "/" or exchange.header(b"content-type") != _BATCH:
            return False
        task = asyncio.get_running_loop().create_task(self._pass_on(exchange))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        exchange.on_gone = task.cancel
        return True

    async def _pass_on(self, exchange: Exchange) -> None:
        pool = self._local.pool
        try:
            begun = pool.begin("POST", "/", _HEADERS, exchange.body)
            if begun:
                response = await begun.response(self._timeout_s)
            else:
                response = await pool.request("POST", "/", _HEADERS, exchange.body, self._timeout_s)
        except TimeoutError:
            exchange.reply(504, b"the handler did not answer in time", "text/plain")
        except CarpoolError as error:
            log.warning("the handler broke off: %s", error)
            self._local.lost(str(error))
            exchange.abort()
        else:
            headers = [
                (name.decode("latin-1"), value.decode("latin-1"))
                for name, value in response.headers
                if name not in _NOT_PASSED
            ]
            kind = (response.header(b"content-type") or b"").decode("latin-1")
            exchange.reply(response.status, response.body, kind, headers)
