"""``/function/NAME``: one request to one replica, as in OpenFaaS's provider SDK.

Differences from the SDK, with reasons: a request for a function without a ready replica is held
until there is one (there may be no gateway in front to do it); a replica that cannot be reached is
skipped for another one; one that breaks off during its response gives 502 where the SDK gives 500;
an ``X-Timeout`` of zero or less is dropped, as it would remove the watchdog's time limit; and the
gateway's ``X-Call-Id`` and ``X-Start-Time`` are added if no gateway has added them.

No call waits indefinitely. Instead of a timer for each call, a sweep over all calls, twice a
second, stops those that exceed their time limit or whose replica no longer responds to probes
(see `call`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from carpool import errors
from carpool.errors import CarpoolError, FunctionFault, NotFound, Overloaded
from carpool.http.client import ConnectionFailed
from carpool.http.exchange import encoded
from carpool.http.refusal_budget import RefusalBudget
from faas_stack.provider.answer_head import has_not_begun, read_answer_head
from faas_stack.provider.bundled_call import (
    CLIENT_LEFT,
    BundledCall,
    closed_unanswered,
    use_retry,
)
from faas_stack.provider.call import INTERNAL, Call, may_be_bundled
from faas_stack.provider.call_template import PREFIX, CallTemplates
from faas_stack.provider.canaries import Canaries
from faas_stack.provider.held_calls import HeldCalls

if TYPE_CHECKING:
    from collections.abc import Callable

    from carpool.http.call_client import Calls
    from carpool.http.client import Pool, StreamedResponse
    from carpool.http.server import Exchange
    from faas_stack.provider.answer_head import AnswerHead
    from faas_stack.provider.function import Function
    from faas_stack.provider.metrics import Metrics
    from faas_stack.provider.orchestrator import Orchestrator
    from faas_stack.provider.replica import Replica

__all__ = ["PREFIX", "Proxy"]

log = logging.getLogger(__name__)

_METHODS = frozenset(("POST", "PUT", "PATCH", "DELETE", "GET", "OPTIONS", "HEAD"))
_TRIES = 5  # replicas to try if none has begun, before the client gets an error
_SWEEP_S = 0.5
_FULL = errors.answer(
    Overloaded("more calls than can be answered in time: this one would be late", 1.0)
)
_FULL_HEADERS = encoded((INTERNAL, *_FULL.headers))
_SHOWN = 80  # characters of a name that does not belong to a function


class Proxy:
    """Forwards requests: in bundles if the replica supports them, otherwise in a task each."""

    def __init__(self, orchestrator: Orchestrator[Any], metrics: Metrics) -> None:
        self._orchestrator = orchestrator
        self._metrics = metrics
        self._templates = CallTemplates(orchestrator.default_namespace)
        self._canaries = Canaries(orchestrator)
        self._calls: dict[Call, Callable[[], object]] = {}  # with the function that stops each
        self._sweeping: asyncio.TimerHandle | None = None
        self._refusal_budget = RefusalBudget(time.monotonic)
        self._held: dict[Function, HeldCalls] = {}

    def accept(self, exchange: Exchange) -> None:
        """Start to respond to a request whose target starts with ``PREFIX``."""
        if exchange.method not in _METHODS:
            allowed = ("allow", ", ".join(sorted(_METHODS)))
            exchange.reply(
                405, errors.body(f"method {exchange.method} is not allowed"), headers=[allowed]
            )
            return
        template, own = self._templates.split(exchange)
        try:
            function = self._find(*template.function)
        except CarpoolError as error:
            call = Call(exchange, template, own)
            self.finished(call, call.fail(error))
            return
        replica: Replica | None = None
        if not function.division and may_be_bundled(exchange, template):
            replica = self._orchestrator.choose(function)
        calls = replica.calls if replica else None
        if calls and calls.full and template.plain:
            self._hold(exchange, function)
            return
        call = Call(exchange, template, own)
        if self._sweeping is None:
            loop = asyncio.get_running_loop()
            self._sweeping = loop.call_later(_SWEEP_S, self._sweep_again)
        if replica and calls:
            bundled = BundledCall(self, function, call, replica)
            self._calls[call] = bundled.stop
            self._count(call, function)
            bundled.begin(calls)
        else:
            self.forward_alone(call, function)

    def forward_alone(self, call: Call, function: Function) -> None:
        """Send a call by itself to the first replica that is ready."""
        task = asyncio.get_running_loop().create_task(self._answer(call, function))
        self._calls[call] = task.cancel
        task.add_done_callback(lambda _: self._calls.pop(call, None))
        call.exchange.on_gone = task.cancel

    def finished(self, call: Call, status: int) -> None:
        """Count a finished call."""
        self._calls.pop(call, None)
        self._observe(call.exchange, status)
        if call.function:
            call.function.answers[status] += 1

    def _observe(self, exchange: Exchange, status: int) -> None:
        # This is the loop's clock. Asking for the loop takes a system call until Python 3.12.
        seconds = time.monotonic() - exchange.received
        self._metrics.observe(status, exchange.method, "/function/{name}", seconds)

    # -- held calls -------------------------------------------------------------------------

    def _hold(self, exchange: Exchange, function: Function) -> None:
        held = self._held.get(function)
        if held is None:
            held = self._held[function] = HeldCalls(self, function, self._refusal_budget)
        held.hold(exchange)

    def choose(self, function: Function) -> Calls | None:
        """Return what would send a function's next call in a bundle; None if nothing would."""
        replica = self._orchestrator.choose(function)
        return replica.calls if replica else None

    def refuse_held(self, exchange: Exchange, function: Function) -> None:
        """Refuse a call that would be answered too late."""
        status, body, _ = _FULL
        exchange.reply(status, body, headers=_FULL_HEADERS)
        self._count_held(exchange, function, status)

    def held_left(self, exchange: Exchange, function: Function) -> None:
        """Count a held call whose client has left."""
        self._count_held(exchange, function, CLIENT_LEFT)

    def none_held(self, function: Function) -> None:
        """Note that no calls of a function are held any more."""
        del self._held[function]

    def _count_held(self, exchange: Exchange, function: Function, status: int) -> None:
        function.invocations += 1
        function.answers[status] += 1
        self._observe(exchange, status)

    # -- sending ----------------------------------------------------------------------------

    @staticmethod
    def _count(call: Call, function: Function) -> None:
        """Count an invocation of a function, once per call, however often the call is sent."""
        if call.function is not function:
            call.function = function
            function.invocations += 1

    def sweep(self, now: float) -> None:
        """Stop the calls that must be stopped at ``now``, event-loop time in seconds."""
        for call, stop in tuple(self._calls.items()):
            if call.must_stop(now):
                stop()

    def _sweep_again(self) -> None:
        loop = asyncio.get_running_loop()
        self.sweep(loop.time())
        self._sweeping = loop.call_later(_SWEEP_S, self._sweep_again) if self._calls else None

    async def _answer(self, call: Call, function: Function) -> None:
        exchange, status = call.exchange, CLIENT_LEFT
        try:
            serve = self._divide if function.division else self._forward
            status = await serve(function, call)
        except CarpoolError as error:
            unavailable = Overloaded(str(error)) if isinstance(error, NotFound) else error
            status = call.fail(unavailable)
        except asyncio.CancelledError:
            if call.overdue is None:  # its client has disconnected
                raise
            status = call.fail(call.overdue)
        except Exception:
            log.exception("proxying %s failed", exchange.target)
            status = 500
            exchange.reply(status, errors.body("internal error"), headers=[INTERNAL])
        finally:
            self.finished(call, status)

    def _find(self, name: str, namespace: str) -> Function:
        deployed: Function | None = self._orchestrator.get(name, namespace)
        if deployed:
            return deployed
        if not name:
            message = "the path names no function: /function/NAME"
            raise errors.BadRequest(message)
        # Anyone may call, so the error does not suggest names of functions.
        message = f"no function {name[:_SHOWN]!r} in namespace {namespace[:_SHOWN]!r}"
        raise Overloaded(message)

    async def _divide(self, function: Function, call: Call) -> int:
        canary = self._canaries.of(function, call)
        if canary:
            call.divided_to(canary, function)
            try:
                return await self._forward(canary, call)
            except CarpoolError as error:
                if call.begun:
                    raise
                self._canaries.failed(function, canary, error)
        call.divided_to(function, function)
        return await self._forward(function, call)

    async def _forward(self, function: Function, call: Call) -> int:
        self._count(call, function)
        loop = asyncio.get_running_loop()
        for left in reversed(range(_TRIES)):
            if call.has_fallback and not function.available:
                break
            replica: Replica = await self._orchestrator.acquire(function)
            try:
                call.sent_to(replica, function.call_limit_s, loop.time())
                return await self._send(replica.pool, call, last=not (left or call.has_fallback))
            except _NotBegun:
                call.begun = False
                replica.instance.suspect()
            except ConnectionFailed as error:
                call.begun = error.sent
                replica.instance.suspect()
                if not use_retry(error, call):
                    raise closed_unanswered(error) from error
            except asyncio.CancelledError:
                if not call.takes_retry():
                    raise
                _undo_cancellation()
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
                head = read_answer_head(streamed.headers)
                _check_begun(streamed.status, head, last=last)
                await _pass_on(streamed, head, call)
                return streamed.status
        response = await pool.request(*request)
        head = read_answer_head(response.headers)
        _check_begun(response.status, head, last=last)
        headers, length = head.lines + call.added_lines, response.told_length
        exchange.reply(
            response.status, response.body, head.type_for(exchange), headers, length=length
        )
        return response.status


def _undo_cancellation() -> None:
    """Let the current task continue, although it was cancelled."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - this is called by one
    task.uncancel()


class _NotBegun(Exception):
    """Raised when a replica refuses a call before it has started to process it."""


def _check_begun(status: int, head: AnswerHead, *, last: bool) -> None:
    """Raise if another replica may take the call; the ``last`` one's refusal is the response."""
    if has_not_begun(status, head) and not last:
        raise _NotBegun


async def _pass_on(streamed: StreamedResponse, head: AnswerHead, call: Call) -> None:
    """Copy a response piece by piece, no faster than the client reads."""
    exchange = call.exchange
    first = f"content-type: {head.type_for(exchange)}\r\n".encode("latin-1")
    loop = asyncio.get_running_loop()
    exchange.start(streamed.status, first + head.lines + call.added_lines)
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
