"""Passes on requests whose responses the handler streams, bypassing the batches.

Such a request is a batch of one whose response is plain HTTP, in pieces. It goes to the available
instance of its route with the fewest streams for its share, or waits for its turn. Its deadline is
that of the first piece, with which the head of the response comes; then `exec_timeout` applies from
piece to piece, no faster than the caller reads. A caller that leaves closes the connection to the
handler, which closes the author's generator.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from carpool import errors, wire
from carpool.errors import CarpoolError, DeadlineMissed, FunctionFault, QueueFull
from carpool.http.client import ConnectionFailed
from carpool.stream_rule import EVENT_STREAM
from carpool.task_set import TaskSet
from sidecar.runtime.variant_headers import VARIANT_HEADER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from carpool.http.client import StreamedResponse
    from carpool.http.server import Exchange
    from carpool.stream_rule import StreamRule
    from sidecar.core.dispatch import Route
    from sidecar.core.request import Request
    from sidecar.runtime.handler_liveness import ProbedInstance
    from sidecar.runtime.metrics import Metrics
    from sidecar.runtime.readiness import Readiness
    from sidecar.runtime.upstreams import FunctionUpstreams

    Headers = list[tuple[str, str]]

__all__ = ["STREAMED", "Cut", "Streams", "decoded", "pass_on"]

log = logging.getLogger(__name__)

# of-watchdog passes on an answer in pieces only if this is accepted.
STREAMED = f"accept: {EVENT_STREAM}\r\n".encode()
_AGAIN_S = 0.1  # pause between searches for free places while requests wait
_TRIES = 3  # number of instances that are tried before the caller gets the error
_OURS = wire.FRAMING | {"content-type", "date", wire.STREAM_HEADER}


class Cut(CarpoolError):
    """Raised when a stream broke off after its beginning.

    Attributes:
        hung: whether no piece came in time.
    """

    def __init__(self, message: str, *, hung: bool) -> None:
        super().__init__(message)
        self.hung = hung


class Streams:
    """Streams of one function.

    Args:
        upstreams: the instances.
        metrics: counts requests and streams.
        readiness: tells why the function cannot be started.
        at_once_max: most streams of one instance.
        waiting_max: most requests that wait for their turn.
        pause_max_s: longest time between two pieces, and to the first; ``inf`` if unlimited.

    Attributes:
        rule: which requests are streamed, as ready instances say; None if none.
    """

    def __init__(
        self,
        upstreams: FunctionUpstreams,
        metrics: Metrics,
        readiness: Readiness,
        at_once_max: int,
        waiting_max: int,
        pause_max_s: float,
    ) -> None:
        self._upstreams = upstreams
        self._metrics = metrics
        self._readiness = readiness
        self._at_once_max = at_once_max
        self._waiting_max = waiting_max
        self._pause_max_s = pause_max_s
        self._waiting: dict[asyncio.Future[ProbedInstance], Request] = {}  # longest first
        self._tasks = TaskSet()
        self._again: asyncio.TimerHandle | None = None
        self.rule: StreamRule | None = None
        metrics.watch_streams(self._counts)

    def takes(self, exchange: Exchange) -> bool:
        """Return whether a request is streamed, and an instance can stream it."""
        if self.rule is None or exchange.method == "HEAD":
            return False
        accept = (exchange.header(b"accept") or b"").decode("latin-1")
        return self.rule.admits(exchange.target, accept)

    def changed(self) -> None:
        """Note that instances came up or went down, or that the function fails."""
        able = [i for i in self._upstreams if i.up and i.stream_rule]
        self.rule = able[0].stream_rule if able else None
        if self._readiness.failing():
            self._give_up(self._readiness.does_not_start())
        self._fill_places()

    def begin(self, request: Request) -> None:
        """Pass a request on when its turn has come.

        Raises:
            QueueFull: too many requests are already waiting.
        """
        if len(self._waiting) >= self._waiting_max:
            msg = f"{len(self._waiting)} requests are already waiting for a stream"
            raise QueueFull(msg, retry_after_s=1.0)
        task = self._tasks.start(self._serve(request))
        task.add_done_callback(partial(self._ended, request))
        request.payload.exchange.on_gone = task.cancel

    def _ended(self, request: Request, task: asyncio.Task[None]) -> None:
        """Count a request whose caller left before its task had begun; the task counts others."""
        if task.cancelled():
            self._metrics.unanswered(request, "cancelled", None, time.monotonic())

    def _counts(self) -> tuple[int, int]:
        return sum(instance.streams for instance in self._upstreams), len(self._waiting)

    async def _serve(self, request: Request) -> None:
        exchange = request.payload.exchange
        begun = False

        def begins(status: int) -> None:
            nonlocal begun
            begun = True
            self._metrics.answered(request, status, time.monotonic())

        how = "complete"
        try:
            await self._answer(request, begins)
        except asyncio.CancelledError:  # the caller has disconnected
            how = "caller_left"
            if not begun:
                self._metrics.unanswered(request, "cancelled", None, time.monotonic())
        except Cut as error:
            how = "cut_off"
            log.warning("a stream was cut off: %s", error)
        except CarpoolError as error:
            self._fail(request, error)
        except Exception:
            how = "cut_off"
            log.exception("streaming an answer to %s failed", exchange.target)
            if begun:
                exchange.abort()
            else:
                self._fail(request, FunctionFault("internal error"))
        if begun:
            self._metrics.stream_ended(how)
        self._upstreams.close_departed()

    def _fail(self, request: Request, error: CarpoolError) -> None:
        """Answer a request with an error, as nothing was answered before."""
        state = "expired" if isinstance(error, DeadlineMissed) else "failed"
        self._metrics.unanswered(request, state, error.status, time.monotonic())
        request.payload.exchange.fail(error)

    async def _answer(self, request: Request, begins: Callable[[int], None]) -> None:
        """Have an instance answer; try another one if it fails before it has begun."""
        for left in reversed(range(_TRIES)):
            try:
                await self._answer_once(request, begins)
            except ConnectionFailed as error:
                if not left or (error.sent and not error.stale):
                    raise
            else:
                return

    async def _answer_once(self, request: Request, begins: Callable[[int], None]) -> None:
        late = request.deadline
        first = asyncio.timeout_at(late if late < math.inf else None)
        try:
            async with first, self._place(request) as instance:
                hung_at = asyncio.get_running_loop().time() + self._pause_max_s
                if hung_at < late:
                    first.reschedule(hung_at)
                try:
                    await self._ask(instance, request, first, begins)
                except asyncio.CancelledError:
                    if first.expired() and hung_at < late:
                        instance.hung(f"it did not begin a stream within {self._pause_max_s:g} s")
                    raise
        except TimeoutError as error:
            msg = "the deadline passed before the first piece of the stream was available"
            raise DeadlineMissed(msg) from error

    async def _ask(
        self,
        instance: ProbedInstance,
        request: Request,
        first: asyncio.Timeout,
        begins: Callable[[int], None],
    ) -> None:
        payload, now = request.payload, time.monotonic()
        message = wire.encode_request(
            [request.id], [request.deadline - now], [payload.head], [payload.exchange.body]
        )
        headers = instance.headers + STREAMED
        try:
            # of-watchdog closes the body of a request as it passes on the head of the response. If
            # the body has a length, Go's proxy may still be looking for its end, and breaks off.
            async with instance.streaming.stream(
                "POST", "/", headers, message, chunked=True
            ) as answer:
                _check(answer)
                first.reschedule(None)
                begins(answer.status)
                passed = [pair for pair in decoded(answer) if pair[0] not in _OURS]
                if variant := instance.upstream.variant:
                    passed.append((VARIANT_HEADER, variant))
                await pass_on(answer, payload.exchange, passed, self._pause_max_s)
        except ConnectionFailed as error:
            instance.unreachable(str(error))
            raise
        except Cut as error:
            if error.hung:
                instance.hung(str(error))
            else:  # usually the author's generator or the reader; other requests are unaffected
                instance.probe_soon()
            raise

    @asynccontextmanager
    async def _place(self, request: Request) -> AsyncIterator[ProbedInstance]:
        """Wait for this request's turn, and hold a place at an instance."""
        instance = await self._turn(request)
        try:
            yield instance
        finally:
            instance.streams -= 1
            self._fill_places()

    async def _turn(self, request: Request) -> ProbedInstance:
        turn: asyncio.Future[ProbedInstance] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = request
        self._fill_places()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting.pop(turn, None)
            elif not turn.exception():  # it has just got a place
                turn.result().streams -= 1
                self._fill_places()
            raise

    def _fill_places(self) -> None:
        """Give free places to the requests that have waited longest, and may go there."""
        free = self._free() if self._waiting else []
        for turn, request in tuple(self._waiting.items()):
            if not free:
                break
            if turn.cancelled():
                del self._waiting[turn]
            elif instance := _chosen(free, self._upstreams.route(request)):
                del self._waiting[turn]
                instance.streams += 1
                turn.set_result(instance)
                free = self._free()
        # An instance that gets no requests for a while reports no end.
        if self._waiting and self._again is None:
            self._again = asyncio.get_running_loop().call_later(_AGAIN_S, self._look_again)

    def _look_again(self) -> None:
        self._again = None
        self._fill_places()

    def _free(self) -> list[ProbedInstance]:
        """Return the instances that have a place for a stream."""
        now = time.monotonic()
        return [
            instance
            for instance in self._upstreams
            if instance.stream_rule
            and instance.streams < self._at_once_max
            and instance.upstream.available(now)
        ]

    def _give_up(self, error: CarpoolError) -> None:
        waiting, self._waiting = self._waiting, {}
        for turn in waiting:
            if not turn.done():
                turn.set_exception(error)


def _chosen(free: list[ProbedInstance], route: Route) -> ProbedInstance | None:
    """Return the instance of a route with the fewest streams for its share; None if there is none.

    An overloaded one is chosen only if there is no other.
    """
    able = [instance for instance in free if route.admits(instance.upstream)]
    alike = Counter(instance.upstream.instance_class for instance in able)

    def load(instance: ProbedInstance) -> tuple[bool, float]:
        name = instance.upstream.instance_class
        share = 1.0 if route.weights is None else route.weights[name] / alike[name]
        return instance.upstream.overloaded, (instance.streams + 1) / share

    return min(able, key=load, default=None)


def _check(answer: StreamedResponse) -> None:
    """Raise if the response is not the handler's: of-watchdog sends 200 without a handler."""
    if answer.header(wire.STREAM_HEADER.encode()) is None:
        loading = answer.status == 503  # noqa: PLR2004 - it has not begun
        msg = f"the function did not answer a request to stream (status {answer.status})"
        raise ConnectionFailed(msg, sent=not loading)


def decoded(answer: StreamedResponse) -> Headers:
    """Return the headers of a response as text."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in answer.headers]


async def pass_on(
    answer: StreamedResponse, exchange: Exchange, headers: Headers, pause_max_s: float
) -> None:
    """Pass on a response as it comes, no faster than it is read.

    Args:
        answer: the response, which has begun.
        exchange: the exchange to answer.
        headers: headers to pass on.
        pause_max_s: longest time between two pieces; ``inf`` if unlimited.

    Raises:
        Cut: it broke off; its reader has been told.
    """
    limit_s = pause_max_s if pause_max_s < math.inf else None
    content_type = (answer.header(b"content-type") or b"").decode("latin-1")
    chunks, after_event = answer.chunks(), True
    exchange.start(answer.status, [("content-type", content_type), *headers])
    try:
        while True:
            async with asyncio.timeout(limit_s):
                chunk = await anext(chunks, b"")
            if not chunk:
                break
            exchange.write(chunk)
            after_event = chunk.endswith(b"\n\n")
            await exchange.drained()
    except TimeoutError:
        cut = Cut(f"no piece of it arrived within {limit_s:g} s", hung=True)
    except ConnectionFailed as error:
        cut = Cut(f"the function ended the stream early: {error}", hung=False)
    else:
        exchange.end()
        return
    exchange.on_gone = None
    if after_event and content_type.startswith(EVENT_STREAM):
        exchange.write(b"event: error\ndata: %b\n\n" % errors.body(cut))
        exchange.end()
    else:
        exchange.abort()
    raise cut
