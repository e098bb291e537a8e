"""Sends batches to their instances, and answers each request in them.

There is no task for a request, nor for a batch if a connection is idle. The core decides when
batches leave, and what a failed batch means for its requests.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Protocol

from carpool import errors, wire
from carpool.errors import CarpoolError, DeadlineMissed, FunctionFault
from carpool.http.client import ConnectionFailed
from carpool.http.time_limits import TimeLimits
from sidecar.core.batch import Fault
from sidecar.runtime import batch_call
from sidecar.runtime.merged_call import MergedCall
from sidecar.runtime.variant_headers import VARIANT_HEADER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from carpool.http.client import Response
    from sidecar.core.batch import Batch
    from sidecar.core.batcher import Batcher
    from sidecar.core.load_counter import LoadCounter
    from sidecar.core.request import Request
    from sidecar.runtime.compression import Compression
    from sidecar.runtime.handler_liveness import ProbedInstance
    from sidecar.runtime.metrics import Metrics
    from sidecar.runtime.recent_batches import RecentBatches
    from sidecar.runtime.tracing import Tracing
    from sidecar.runtime.upstreams import FunctionUpstreams

    _Call = batch_call.BatchCall | MergedCall

__all__ = ["Driver", "Sender"]

log = logging.getLogger(__name__)

_IS_STREAMED = (wire.STREAM_HEADER, "true")
_FAILED_FROM = 500  # lowest status that counts as a failure of the function
_REPLY_FAILED = "answering %s %s failed"


class Driver(Protocol):
    """The batch loop as the sender uses it: it makes the batcher step."""

    batcher: Batcher
    upstreams: FunctionUpstreams
    metrics: Metrics
    compression: Compression | None
    load: LoadCounter | None

    @property
    def tracing(self) -> Tracing | None:
        """Tracing of requests; None if none are traced."""

    def stream(self, request: Request) -> None:
        """Stream the response to a request in pieces, bypassing the batches."""

    def step_now(self) -> None:
        """Let the batcher step at once."""

    def step_soon(self) -> None:
        """Let the batcher step when this iteration of the event loop ends."""


class Sender:
    """Sends batches, and answers the requests in them.

    Args:
        driver: makes the batcher step.
        recent: keeps the last batches.
        exec_timeout_s: time limit of one batch; ``inf`` if none.
    """

    def __init__(self, driver: Driver, recent: RecentBatches, exec_timeout_s: float) -> None:
        self._driver = driver
        self._batcher = driver.batcher
        self._upstreams = driver.upstreams
        self._metrics = driver.metrics
        self._recent = recent
        self._exec_timeout_s = exec_timeout_s
        self._time_limits = TimeLimits(exec_timeout_s)
        self._now = time.monotonic

    def begin(self, batch: Batch) -> None:
        """Send ``batch`` now; its members are answered once the instance has responded."""
        instance = self._upstreams.of(batch.upstream)
        protocol, tracing = self._upstreams.protocol, self._driver.tracing
        context = tracing.sent(batch) if tracing else ()
        call: _Call
        if protocol:
            call = MergedCall(batch, instance, protocol, context)
        else:
            call = batch_call.BatchCall(batch, instance, context)
        metrics = self._metrics
        metrics.batch_closed(batch.close_reason.value)
        metrics.size.observe(batch.item_count)
        metrics.wait.observe_all([batch.sent - request.arrived for request in batch.requests])
        self._time_limits.begin(call.pending)
        call.pending.then(partial(self._returned, batch, instance, call))

    def end(
        self,
        requests: Iterable[Request],
        error: CarpoolError,
        state: str,
        headers: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Answer ``requests`` with ``error``, and count them in the terminal state ``state``."""
        status, body, own = errors.answer(error)
        own, now = (*headers, *own), self._now()
        for request in requests:
            exchange = request.payload.exchange
            try:
                exchange.reply(status, body, headers=own)
            except Exception:  # the others wait for theirs
                log.exception(_REPLY_FAILED, exchange.method, exchange.target)
            self._metrics.unanswered(request, state, status, now)

    def _returned(
        self, batch: Batch, instance: ProbedInstance, call: _Call, outcome: Response | Exception
    ) -> None:
        """Answer the members of ``batch``, whose ``call`` has come to its end."""
        self._time_limits.end(call.pending)
        if isinstance(call, MergedCall) and call.leaves_time(outcome):
            self._batcher.returned(batch, self._now())
            self._driver.step_now()  # send the next batch first, because the server is idle
        try:
            answers = call.answers(outcome, self._exec_timeout_s)
        except CarpoolError as error:
            self._broken(batch, instance, error, repeatable=call.repeatable)
        except Exception:
            log.exception("sending a batch of %d failed", len(batch.requests))
            self._broken(batch, instance, FunctionFault("internal error"))
        else:
            self._answered(batch, answers)
            instance.answered(batch.exec_s)
        if isinstance(outcome, Exception):
            outcome.__traceback__ = None  # its frames refer to the error: break the cycle
        self._upstreams.close_departed()
        self._driver.step_soon()

    def _answered(self, batch: Batch, answers: batch_call.Answers) -> None:
        # The time of requests that must be streamed is not an execution time.
        executed = wire.STREAM_STATUS not in answers.statuses
        failed = [status >= _FAILED_FROM for status in answers.statuses]
        now = self._now()
        waiting = set(
            self._batcher.finished(batch, failed, now, offends=answers.offends, executed=executed)
        )
        if self._upstreams.protocol:
            self._upstreams.backoff.answered(batch, now, offends=answers.offends)
        compression, tracing = self._driver.compression, self._driver.tracing
        if tracing:
            tracing.returned(batch, "answered", now)
        if executed:
            self._executed(batch, now)
        if self._batcher.has_full_batch:
            self._driver.step_now()  # send the next batch first, because the instance is idle
        self._metrics.padded(*answers.padding)
        self._recent.record(batch, "answered")
        variant = batch.upstream.variant
        chosen = ((VARIANT_HEADER, variant),) if variant else ()
        for request, status, head, body in zip(batch.requests, *answers[:3], strict=True):
            if request not in waiting:
                continue
            if status == wire.STREAM_STATUS and _IS_STREAMED in head.headers:
                self._driver.stream(request)  # no instance was up to declare this when it arrived
                continue
            self._metrics.answered(request, status, now, batch)
            headers = (*head.headers, *chosen) if chosen else head.headers
            explain = request.payload.template.explain
            headers = (*headers, *_explanation(batch, request)) if explain else headers
            exchange, content_type = request.payload.exchange, head.content_type
            answer, length = (exchange, status, body, content_type, headers), head.length
            try:
                if not (compression and compression.replies(*answer, length)):
                    exchange.reply(status, body, content_type, headers, length=length)
            except Exception:  # the others wait for theirs
                log.exception(_REPLY_FAILED, exchange.method, exchange.target)

    def _executed(self, batch: Batch, now: float) -> None:
        """Count the execution of a batch, for the metrics and the scaler."""
        self._metrics.executed(batch)
        if load := self._driver.load:
            load.executed(batch, now, idle=self._batcher.idle)
            load.answered(batch.requests, now)

    def _broken(
        self,
        batch: Batch,
        instance: ProbedInstance,
        error: CarpoolError,
        *,
        repeatable: bool = True,
    ) -> None:
        self._metrics.broken += 1
        if isinstance(error, ConnectionFailed):
            instance.unreachable(str(error))
        fault = _fault(error, repeatable=repeatable)
        now, tracing = self._now(), self._driver.tracing
        if tracing:
            tracing.returned(batch, fault.value, now)
        failed = self._batcher.broken(batch, fault, now)
        if fault is Fault.HUNG:
            instance.hung(str(error))
        self._recent.record(batch, fault.value)
        self.end(failed, error, "failed")


def _explanation(batch: Batch, request: Request) -> list[tuple[str, str]]:
    """Return headers about a request's batch, for a caller that sent ``X-Carpool-Explain``."""
    facts = {
        "batch": len(batch.requests),
        "closed": batch.close_reason.value,
        "exec-seconds": f"{batch.exec_s:.6f}",
        "expected-seconds": f"{batch.expected_s:.6f}" if batch.expected_s else "",
        "plan": batch.plan if batch.plan is not None else "",
        "wait-seconds": f"{batch.sent - request.arrived:.6f}",
    }
    return [(f"x-carpool-{name}", str(value)) for name, value in facts.items() if value != ""]


def _fault(error: CarpoolError, *, repeatable: bool) -> Fault:
    """Return the fault of a batch for an error of its call; ANSWERED alone is not repeated."""
    if isinstance(error, ConnectionFailed):
        sent = Fault.DIED if repeatable else Fault.ANSWERED
        return sent if error.sent else Fault.UNSENT
    return Fault.HUNG if isinstance(error, DeadlineMissed) else Fault.ANSWERED
