"""``/function/NAME``: one request to one replica, as OpenFaaS's provider SDK passes it on.

What differs from the SDK, and why: a request for a function without a ready replica is held until
there is one (there may be no gateway in front to do it); a replica that cannot be reached is
passed over for another one; one that breaks off while it answers gives 502 where the SDK gives
500; an ``X-Timeout`` of zero or less is dropped, as it would remove the watchdog's time limit; and
the gateway's ``X-Call-Id`` and ``X-Start-Time`` are added where no gateway has.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from typing import TYPE_CHECKING

from carpool import durations, errors
from carpool.errors import CarpoolError, FunctionFault, NotFound, Overloaded
from carpool.http.client import ConnectionFailed
from faas_stack.provider.deployment import split_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from carpool.http.client import Pool, Response, StreamedResponse
    from carpool.http.server import Exchange
    from faas_stack.provider.fleet import Fleet, Function
    from faas_stack.provider.metrics import Metrics

__all__ = ["PREFIX", "Proxy"]

log = logging.getLogger(__name__)

PREFIX = "/function/"
_METHODS = frozenset(("POST", "PUT", "PATCH", "DELETE", "GET", "OPTIONS", "HEAD"))
_INTERNAL = ("x-openfaas-internal", "proxy")  # an error of the platform, not of the function
_HOP_BY_HOP = frozenset(
    b"connection keep-alive te trailer transfer-encoding upgrade".split()  # codespell:ignore te
)
_OURS = frozenset((b"content-length", b"content-type", b"date"))  # the edge writes these itself
_STREAMS = (b"text/event-stream", b"application/x-ndjson")
_CLIENT_LEFT = 499  # in metrics only: nobody is there to be answered
_TRIES = 5  # replicas that could not be reached at all, before the client is told

Headers = list[tuple[str, str]]


class Proxy:
    """Passes requests on; one task per request, cancelled when its client leaves."""

    def __init__(self, fleet: Fleet, metrics: Metrics) -> None:
        self._fleet = fleet
        self._metrics = metrics
        self._tasks: set[asyncio.Task[None]] = set()

    def accept(self, exchange: Exchange) -> None:
        """Begin to answer a request whose target starts with ``PREFIX``."""
        if exchange.method not in _METHODS:
            allowed = ("allow", ", ".join(sorted(_METHODS)))
            exchange.reply(405, errors.body(f"no method {exchange.method}"), headers=[allowed])
            return
        task = asyncio.get_running_loop().create_task(self._answer(exchange))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        exchange.on_gone = task.cancel

    async def _answer(self, exchange: Exchange) -> None:
        call, function = _Call(exchange), None
        status = _CLIENT_LEFT
        try:
            function = self._find(exchange)
            function.invocations += 1
            status = await self._forward(function, call)
        except CarpoolError as error:
            unavailable = Overloaded(str(error)) if isinstance(error, NotFound) else error
            status = unavailable.status
            exchange.fail(unavailable, [_INTERNAL, *call.added])
        except Exception:
            log.exception("proxying %s failed", exchange.target)
            status = 500
            exchange.reply(status, errors.body("internal error"), headers=[_INTERNAL])
        finally:
            seconds = asyncio.get_running_loop().time() - exchange.received
            self._metrics.observe(status, exchange.method, "/function/{name}", seconds)
            if function:
                function.answers[status] += 1

    def _find(self, exchange: Exchange) -> Function:
        name = exchange.target[len(PREFIX) :].partition("?")[0].partition("/")[0]
        if not name:
            message = "the path names no function: /function/NAME"
            raise errors.BadRequest(message)
        return self._fleet.find(*split_name(name))

    async def _forward(self, function: Function, call: _Call) -> int:
        for _ in range(_TRIES):
            replica = await self._fleet.acquire(function)
            try:
                call.depart()
                return await self._send(replica.pool, call)
            except ConnectionFailed as error:
                replica.instance.suspect()
                if error.sent:  # it may have been acted upon: not ours to repeat
                    message = f"the function broke off before it answered: {error}"
                    raise FunctionFault(message) from error
            finally:
                replica.release()
        message = f"no replica of {function.deployment.service!r} could be reached"
        raise FunctionFault(message)

    async def _send(self, pool: Pool, call: _Call) -> int:
        exchange = call.exchange
        request = exchange.method, call.target, call.headers, exchange.body
        if call.streams:
            async with pool.stream(*request) as streamed:
                await _pass_on(streamed, call)
                return streamed.status
        response = await pool.request(*request)
        kind = _content_type(response, exchange)
        headers = _answer_headers(response.headers) + call.added
        exchange.reply(response.status, response.body, kind, headers)
        return response.status


class _Call:
    """A request in the form in which it is passed on."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        path, question, query = exchange.target[len(PREFIX) :].partition("?")
        self.target = f"/{path.partition('/')[2]}{question}{query}"
        self.added = _call_id(exchange)
        self.headers = _request_headers(exchange) + self.added
        self._timed = exchange.header(b"x-start-time") is not None

    def depart(self) -> None:
        """It leaves for a replica: its time begins, unless the gateway has said when it did.

        As at the gateway, to wait until a function has started is not held against an objective.
        """
        if not self._timed:
            self._timed = True
            start = ("x-start-time", str(time.time_ns()))
            self.added.append(start)
            self.headers.append(start)

    @property
    def streams(self) -> bool:
        """Whether the client asks for an answer in pieces."""
        accept = self.exchange.header(b"accept") or b""
        return any(kind in accept for kind in _STREAMS)


async def _pass_on(streamed: StreamedResponse, call: _Call) -> None:
    """Copy an answer piece by piece, no faster than the client reads."""
    exchange = call.exchange
    kind = _content_type(streamed, exchange)
    headers = _answer_headers(streamed.headers) + call.added
    exchange.start(streamed.status, [("content-type", kind), *headers])
    try:
        async for chunk in streamed.chunks():
            exchange.write(chunk)
            await exchange.drained()
    except ConnectionFailed as error:
        log.warning("an answer to %s was cut off: %s", exchange.target, error)
        exchange.abort()
        return
    exchange.end()


def _request_headers(exchange: Exchange) -> Headers:
    dropped = _HOP_BY_HOP | _named_by_connection(exchange.headers)
    names = set()
    headers: Headers = []
    for name, value in exchange.headers:
        if name in dropped or name.startswith(b"proxy-") or name in (b"content-length", b"host"):
            continue
        if name == b"x-timeout" and _removes_limit(value):
            continue
        names.add(name)
        headers.append((name.decode("latin-1"), value.decode("latin-1")))
    if b"x-forwarded-host" not in names and (host := exchange.header(b"host")):
        headers.append(("x-forwarded-host", host.decode("latin-1")))
    if b"x-forwarded-for" not in names and (peer := exchange.peer):
        headers.append(("x-forwarded-for", peer))
    return headers


def _call_id(exchange: Exchange) -> Headers:
    """As the gateway adds it to request and answer, if it has not."""
    known = exchange.header(b"x-call-id") is not None
    return [] if known else [("x-call-id", str(uuid.uuid4()))]


def _answer_headers(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    kept = list(headers)
    dropped = _HOP_BY_HOP | _OURS | _named_by_connection(kept)
    return [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in kept
        if name not in dropped and not name.startswith(b"proxy-")
    ]


def _named_by_connection(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Headers that ``Connection`` declares to be for this hop only."""
    values = [value for name, value in headers if name == b"connection"]
    return frozenset(word.strip().lower() for value in values for word in value.split(b","))


def _content_type(answer: Response | StreamedResponse, exchange: Exchange) -> str:
    """The answer's, else the request's, else plain text."""
    for name, value in answer.headers:
        if name == b"content-type":
            return value.decode("latin-1")
    return (exchange.header(b"content-type") or b"text/plain").decode("latin-1")


def _removes_limit(timeout: bytes) -> bool:
    try:
        return durations.parse(timeout.decode("latin-1").strip()) <= 0
    except durations.DurationError:
        return False  # the watchdog ignores what it cannot read
