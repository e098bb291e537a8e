"""``/function/NAME``: one request to one replica, as OpenFaaS's provider SDK passes it on.

What differs from the SDK, and why: a request for a function without a ready replica is held until
there is one (there may be no gateway in front to do it); a replica that cannot be reached is
passed over for another one; one that breaks off while it answers gives 502 where the SDK gives
500; an ``X-Timeout`` of zero or less is dropped, as it would remove the watchdog's time limit; and
the gateway's ``X-Call-Id`` and ``X-Start-Time`` are added where no gateway has.

No call waits for ever. There is no timer for each: one sweep over those under way, twice a second,
stops what is over its time or with a replica that does not answer probes any more (see `call`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from carpool import errors, wire
from carpool.errors import CarpoolError, FunctionFault, NotFound, Overloaded
from carpool.http.client import ConnectionFailed
from faas_stack.provider.call import Call
from faas_stack.provider.call_template import (
    HOP_BY_HOP,
    PREFIX,
    CallTemplates,
    lines,
    named_by_connection,
)
from faas_stack.provider.canaries import Canaries
from faas_stack.provider.deployment import split_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.http.client import Pool, Response, StreamedResponse
    from carpool.http.server import Exchange
    from faas_stack.provider.function import Function
    from faas_stack.provider.metrics import Metrics
    from faas_stack.provider.orchestrator import Orchestrator
    from faas_stack.provider.replica import Replica

__all__ = ["PREFIX", "Proxy"]

log = logging.getLogger(__name__)

_METHODS = frozenset(("POST", "PUT", "PATCH", "DELETE", "GET", "OPTIONS", "HEAD"))
_INTERNAL = ("x-openfaas-internal", "proxy")  # an error of the platform, not of the function
_OURS = frozenset((b"content-length", b"content-type", b"date"))  # the edge writes these itself
_NOT_PASSED = _OURS | HOP_BY_HOP
_CLIENT_LEFT = 499  # in metrics only: nobody is there to be answered
_TRIES = 5  # replicas that did not begin with a call, before the client is told
_SWEEP_S = 0.5
_SHOWN = 80  # characters of a name that does not belong to a function
_UNAVAILABLE = 503
_NOT_BEGUN = wire.NOT_BEGUN_HEADER.encode()


class Proxy:
    """Passes requests on; one task per request, cancelled when its client leaves."""

    def __init__(self, orchestrator: Orchestrator[Any], metrics: Metrics) -> None:
        self._orchestrator = orchestrator
        self._metrics = metrics
        self._templates = CallTemplates()
        self._canaries = Canaries(orchestrator)
        self._calls: dict[asyncio.Task[None], Call] = {}
        self._sweeping: asyncio.TimerHandle | None = None

    def accept(self, exchange: Exchange) -> None:
        """Begin to answer a request whose target starts with ``PREFIX``."""
        if exchange.method not in _METHODS:
            allowed = ("allow", ", ".join(sorted(_METHODS)))
            exchange.reply(405, errors.body(f"no method {exchange.method}"), headers=[allowed])
            return
        call = Call(exchange, *self._templates.split(exchange))
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._answer(call))
        self._calls[task] = call
        task.add_done_callback(self._calls.pop)
        exchange.on_gone = task.cancel
        if self._sweeping is None:
            self._sweeping = loop.call_later(_SWEEP_S, self._sweep_again)

    def sweep(self, now: float) -> None:
        """Stop what has to be stopped at ``now``, event-loop time in seconds."""
        for task, call in self._calls.items():
            if call.must_stop(now):
                task.cancel()

    def _sweep_again(self) -> None:
        loop = asyncio.get_running_loop()
        self.sweep(loop.time())
        self._sweeping = loop.call_later(_SWEEP_S, self._sweep_again) if self._calls else None

    async def _answer(self, call: Call) -> None:
        exchange, status = call.exchange, _CLIENT_LEFT
        try:
            function = self._find(call.template.name)
            serve = self._divide if function.division else self._forward
            status = await serve(function, call)
        except CarpoolError as error:
            unavailable = Overloaded(str(error)) if isinstance(error, NotFound) else error
            status = call.fail(unavailable)
        except asyncio.CancelledError:
            if call.overdue is None:  # its client has left
                raise
            status = call.fail(call.overdue)
        except Exception:
            log.exception("proxying %s failed", exchange.target)
            status = 500
            exchange.reply(status, errors.body("internal error"), headers=[_INTERNAL])
        finally:
            seconds = asyncio.get_running_loop().time() - exchange.received
            self._metrics.observe(status, exchange.method, "/function/{name}", seconds)
            if call.function:
                call.function.answers[status] += 1

    def _find(self, name: str) -> Function:
        if not name:
            message = "the path names no function: /function/NAME"
            raise errors.BadRequest(message)
        default = self._orchestrator.default_namespace
        function, namespace = split_name(name, "", default)
        deployed: Function | None = self._orchestrator.get(function, namespace)
        if deployed:
            return deployed
        # Anyone may call: no hint tells which functions there are.
        message = f"no function {function[:_SHOWN]!r} in namespace {namespace[:_SHOWN]!r}"
        raise Overloaded(message)

    async def _divide(self, function: Function, call: Call) -> int:
        canary = self._canaries.of(function, call)
        if canary:
            call.divided_to(canary, spare=True)
            try:
                return await self._forward(canary, call)
            except CarpoolError as error:
                if call.begun:
                    raise
                self._canaries.failed(function, canary, error)
        call.divided_to(function, spare=False)
        return await self._forward(function, call)

    async def _forward(self, function: Function, call: Call) -> int:
        call.function = function
        function.invocations += 1
        loop = asyncio.get_running_loop()
        for left in reversed(range(_TRIES)):
            if call.spare and not function.available:
                break
            replica: Replica = await self._orchestrator.acquire(function)
            try:
                call.sent_to(replica, function.call_limit_s, loop.time())
                return await self._send(replica.pool, call, last=not (left or call.spare))
            except _NotBegun:
                call.begun = False
                replica.instance.suspect()
            except ConnectionFailed as error:
                call.begun = error.sent
                replica.instance.suspect()
                if error.sent and not (error.stale and call.repeats()):
                    message = f"the function closed the connection before it answered: {error}"
                    raise FunctionFault(message) from error
            except asyncio.CancelledError:
                if not call.takes_retry():
                    raise
                _go_on()
            finally:
                call.replica = None
                replica.release()
        message = f"no replica of {function.deployment.service!r} could be reached"
        raise FunctionFault(message)

    async def _send(self, pool: Pool, call: Call, *, last: bool) -> int:
        exchange = call.exchange
        request = exchange.method, call.template.target, call.header_lines, exchange.body
        if call.template.streams:
            async with pool.stream(*request) as streamed:
                _check_begun(streamed, last=last)
                await _pass_on(streamed, call)
                return streamed.status
        response = await pool.request(*request)
        _check_begun(response, last=last)
        content_type = _content_type(response, exchange)
        headers = _answer_lines(response.headers) + call.added_lines
        exchange.reply(
            response.status, response.body, content_type, headers, length=response.told_length
        )
        return response.status


def _go_on() -> None:
    """The task that runs was cancelled, but is not to end."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - this is called by one
    task.uncancel()


class _NotBegun(Exception):
    """A replica has refused a call before it began with it."""


def _check_begun(answer: Response | StreamedResponse, *, last: bool) -> None:
    """Raise if another replica may have the call; the ``last`` one's refusal is the answer."""
    refused = answer.status == _UNAVAILABLE and any(n == _NOT_BEGUN for n, _ in answer.headers)
    if refused and not last:
        raise _NotBegun


async def _pass_on(streamed: StreamedResponse, call: Call) -> None:
    """Copy an answer piece by piece, no faster than the client reads."""
    exchange = call.exchange
    content_type = _content_type(streamed, exchange)
    headers = _answer_lines(streamed.headers) + call.added_lines
    loop = asyncio.get_running_loop()
    first = f"content-type: {content_type}\r\n".encode("latin-1")
    exchange.start(streamed.status, first + headers)
    call.piece_sent(loop.time())
    try:
        async for chunk in streamed.chunks():
            exchange.write(chunk)
            await exchange.drained()
            call.piece_sent(loop.time())
    except ConnectionFailed as error:
        log.warning("an answer to %s was cut off: %s", exchange.target, error)
        exchange.abort()
        return
    exchange.end()


def _answer_lines(headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    named = named_by_connection(headers)
    return lines(
        pair
        for pair in headers
        if pair[0] not in _NOT_PASSED and pair[0] not in named and not pair[0].startswith(b"proxy-")
    )


def _content_type(answer: Response | StreamedResponse, exchange: Exchange) -> str:
    """The answer's, else the request's, else plain text."""
    for name, value in answer.headers:
        if name == b"content-type":
            return value.decode("latin-1")
    return (exchange.header(b"content-type") or b"text/plain").decode("latin-1")
