"""Passes whole batches that a front has formed on to this sidecar's own handler.

Batches are passed on unchanged, bypassing the queue, as the front has already scheduled them. Only
a front of this function may send them: it presents a key derived from the token that both have.
Responses are returned unchanged, too. If the handler closes the connection, so does the relay, and
the front sees the same as at the handler itself. If the front disconnects, the handler continues
with the batch, and is still restarted if it hangs; a stream is closed.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
from functools import partial
from typing import TYPE_CHECKING

from carpool import errors, wire
from carpool.http.client import AnswerTooLarge, ConnectionFailed
from carpool.http.time_limits import TimeLimits
from carpool.stream_rule import EVENT_STREAM
from carpool.task_set import TaskSet
from sidecar.runtime.hop import says_handler_hung
from sidecar.runtime.streams import STREAMED, Cut, decoded, pass_on

if TYPE_CHECKING:
    from carpool.http.client import PendingRequest, Response
    from carpool.http.server import Exchange
    from sidecar.runtime.handler_liveness import ProbedInstance

    Outcome = Response | Exception

__all__ = ["Relay"]

log = logging.getLogger(__name__)

_BATCH = wire.CONTENT_TYPE.encode()
_KEY = wire.KEY_HEADER.encode()
_NOT_PASSED = frozenset(
    b"content-type content-length transfer-encoding connection keep-alive date".split()
)


class Relay:
    """Passes batches on.

    Args:
        local: The instance beside this sidecar.
        exec_timeout_s: Time limit of one batch.
        key: Secret that a batch must present; empty if none.
    """

    def __init__(self, local: ProbedInstance, exec_timeout_s: float, key: str) -> None:
        self._local = local
        self._timeout_s = exec_timeout_s if exec_timeout_s < math.inf else None
        self._time_limits = TimeLimits(exec_timeout_s)
        self._now = asyncio.get_running_loop().time
        self._key = key.encode()
        self._warned = False
        self._tasks = TaskSet()

    def accepts(self, exchange: Exchange) -> bool:
        """Pass ``exchange`` on, or refuse it, if it is a whole batch; return False if it is not."""
        if exchange.target != "/" or exchange.header(b"content-type") != _BATCH:
            return False
        if not hmac.compare_digest(exchange.header(_KEY) or b"", self._key):
            self._refuse(exchange)
            return True
        if exchange.header(b"accept") == EVENT_STREAM.encode():
            task = self._tasks.start(self._stream(exchange))
            exchange.on_gone = task.cancel
        else:
            self._pass_on(exchange)
        return True

    def _refuse(self, exchange: Exchange) -> None:
        if not self._warned:
            self._warned = True
            log.warning("a batch was refused: its sender does not have this function's token")
        text = (
            f"expected {wire.KEY_HEADER}: "
            "whole batches are accepted only from this function's front"
        )
        exchange.reply(403, errors.body(text))

    def _pass_on(self, exchange: Exchange) -> None:
        """Send a batch now; a connection that is idle takes it without a task."""
        local, began = self._local, self._now()
        local.relayed += 1
        pending = local.pool.begin("POST", "/", local.headers, exchange.body)
        self._time_limits.begin(pending)
        pending.then(partial(self._returned, exchange, pending, began))

    def _returned(
        self, exchange: Exchange, pending: PendingRequest, began: float, outcome: Outcome
    ) -> None:
        self._time_limits.end(pending)
        local = self._local
        local.relayed -= 1
        if isinstance(outcome, Exception):
            outcome.__traceback__ = None  # its frames refer to the error: break the cycle
            self._failed(exchange, outcome, self._now() - began)
            return
        if says_handler_hung(outcome):
            local.hung("it did not answer a batch within the watchdog's exec_timeout")
        else:
            local.answered(self._now() - began)
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in outcome.headers
            if name not in _NOT_PASSED
        ]
        content_type = (outcome.header(b"content-type") or b"").decode("latin-1")
        exchange.reply(outcome.status, outcome.body, content_type, headers)

    def _failed(self, exchange: Exchange, error: Exception, exec_s: float) -> None:
        if isinstance(error, TimeoutError):
            self._hung(exchange, f"it did not answer a batch within {self._timeout_s:g} s")
        elif isinstance(error, AnswerTooLarge):
            self._local.answered(exec_s)
            exchange.fail(error)
        else:
            log.warning("the handler closed the connection: %s", error)
            self._local.unreachable(str(error))
            exchange.abort()

    def _hung(self, exchange: Exchange, reason: str) -> None:
        self._local.hung(reason)
        text = b"the handler did not answer in time"
        exchange.reply(504, text, "text/plain", [("x-openfaas-internal", "sidecar")])

    async def _stream(self, exchange: Exchange) -> None:
        """Pass a stream on; the front enforces deadlines and disconnects if it takes too long."""
        local = self._local
        local.streams += 1
        headers = local.headers + STREAMED
        try:
            async with (
                asyncio.timeout(self._timeout_s) as first,
                local.streaming.stream("POST", "/", headers, exchange.body, chunked=True) as answer,
            ):
                first.reschedule(None)
                passed = [p for p in decoded(answer) if p[0].encode() not in _NOT_PASSED]
                await pass_on(answer, exchange, passed, self._timeout_s or math.inf)
        except TimeoutError:
            self._hung(exchange, f"it did not begin a stream within {self._timeout_s:g} s")
        except ConnectionFailed as error:
            local.unreachable(str(error))
            exchange.abort()
        except Cut as error:
            if error.hung:
                local.hung(str(error))
        finally:
            local.streams -= 1
