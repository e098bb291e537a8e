"""The sidecar's metrics. Names and label sets are closed: everything exported is listed here.

Counting happens on the request path, so it is plain additions; Prometheus objects are made only
on request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.prometheus_text import Histogram, counter, gauge, histogram, render
from sidecar.core.batch import CloseReason, Refusal
from sidecar.runtime.outcome_counters import OTHERS, OutcomeCounters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from carpool.http.server import Server
    from carpool.prometheus_text import Family
    from carpool.settings import FunctionSettings
    from sidecar.core.batch import Batch
    from sidecar.core.batcher import Batcher
    from sidecar.core.objective_check import ObjectiveCheck
    from sidecar.core.request import Request
    from sidecar.runtime.request_log import RequestLog
    from sidecar.runtime.tracing import Tracing

__all__ = ["UNFIT", "Metrics"]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SHORT_SECONDS = (
    1e-6,
    2e-6,
    3e-6,
    5e-6,
    7.5e-6,
    1e-5,
    1.5e-5,
    2e-5,
    3e-5,
    5e-5,
    1e-4,
    2e-4,
    1e-3,
    0.01,
)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
UNFIT = "unfit"  # reason of a refusal before the queue: no variant fits the demand
_STATES = ("done", "failed", "expired", "refused", "cancelled")
_RESTARTS = ("died", "hung")
_STREAM_ENDS = ("complete", "cut_off", "caller_left")
_FAILED_FROM = 500  # lowest status that counts as a failure of the function


class Metrics:
    """The counters of one sidecar; `render` gives Prometheus's text format.

    Args:
        settings: settings of the function; None if it has no applications and objectives.
        request_log: told how requests end; None if they are not logged.
        tracing: told how traced requests end; None if none are traced.

    Attributes:
        objective_check: compares execution times with the objective; None if there is none.
    """

    def __init__(
        self,
        settings: FunctionSettings | None = None,
        request_log: RequestLog | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self._outcomes = OutcomeCounters(settings)
        self._request_log = request_log
        self._tracing = tracing
        self.objective_check: ObjectiveCheck | None = None
        self.wait = Histogram(_SECONDS)
        self.execution = Histogram(_SECONDS)
        self.size = Histogram(_SIZES)
        self.selection = Histogram(_SHORT_SECONDS)
        # All known values begin at 0: Prometheus's `increase` and `rate` do not count an event with
        # which a series begins.
        self.requests = dict.fromkeys(_STATES, 0)
        self.refusals = dict.fromkeys((*(reason.value for reason in Refusal), UNFIT), 0)
        self.closed = dict.fromkeys([reason.value for reason in CloseReason], 0)
        self.broken = 0
        self.restarts = dict.fromkeys(_RESTARTS, 0)
        self.elements: dict[str, int] = {}
        self.policy_failures = 0
        self.streams_ended = dict.fromkeys(_STREAM_ENDS, 0)
        self._streams: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self._batcher: Batcher | None = None
        self._server: Server | None = None
        self._refused_plans: Callable[[], dict[str, int]] = dict

    def watch(self, batcher: Batcher) -> None:
        """Read the queue's gauges from ``batcher``."""
        self._batcher = batcher

    def watch_server(self, server: Server) -> None:
        """Read held bytes and closed connections from ``server``."""
        self._server = server

    def watch_sync(self, refused: Callable[[], dict[str, int]]) -> None:
        """Read the number of refused responses of the scaler, by reason, from ``refused``."""
        self._refused_plans = refused

    def watch_streams(self, count: Callable[[], tuple[int, int]]) -> None:
        """Read the number of streams, and of requests waiting for one, from ``count``."""
        self._streams = count

    def answered(
        self, request: Request, status: int, now: float, batch: Batch | None = None
    ) -> None:
        """Count a request that the handler answered in ``batch``, or has begun to stream."""
        failed = status >= _FAILED_FROM
        self._ended("failed" if failed else "done")
        outcome = self._outcomes.answered(request, now, failed=failed)
        if self._request_log:
            self._request_log.ended(request, outcome, status, now, batch)
        if self._tracing and request.payload.span is not None:
            self._tracing.ended(request, outcome, status, now)

    def stream_ended(self, how: str) -> None:
        """Count a stream by how it ended: ``complete``, ``cut_off`` or ``caller_left``."""
        self.streams_ended[how] += 1

    def unanswered(self, request: Request, state: str, status: int | None, now: float) -> None:
        """Count a request that ended without a response from the handler.

        Args:
            request: the request.
            state: how it ended.
            status: status of its response; None if its caller has left.
            now: monotonic seconds.
        """
        self._ended(state)
        self._outcomes.ended(request.app, state, background=request.background)
        if self._request_log:
            self._request_log.ended(request, state, status, now)
        if self._tracing and request.payload.span is not None:
            self._tracing.ended(request, state, status, now)

    def refused(self, reason: str) -> None:
        """Count a request by the reason for its refusal, in addition to `unanswered`."""
        self.refusals[reason] += 1

    def refused_unparsed(self, reason: str, count: int) -> None:
        """Count requests that were refused before they were parsed."""
        self.refusals[reason] += count
        self.requests["refused"] += count
        self._outcomes.refused(OTHERS, count)

    def _ended(self, state: str) -> None:
        self.requests[state] += 1

    def batch_closed(self, reason: str) -> None:
        """Count a batch by the reason why it closed."""
        self.closed[reason] += 1

    def executed(self, batch: Batch) -> None:
        """Count an executed batch, whose time its instance has already learned."""
        self.execution.observe(batch.exec_s)
        if self.objective_check:
            self.objective_check.executed(batch.item_count, batch.upstream.exec_time)

    def restarted(self, reason: str) -> None:
        """Count an end of the function's process, before it is started again."""
        self.restarts[reason] += 1

    def padded(self, padded: int, useful: int) -> None:
        """Count the elements of a batch of unequal lengths, padding and content."""
        if useful:
            self.elements["padding"] = self.elements.get("padding", 0) + padded
            self.elements["useful"] = self.elements.get("useful", 0) + useful

    def render(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return render(self.collect())

    def collect(self) -> Iterator[Family]:
        """Yield the metric families of `render`."""
        yield from self._batch_families()
        yield from self._request_families()
        yield from self._outcomes.collect()
        if self._batcher:
            yield from _of_batcher(self._batcher)
        yield from self._stream_families()
        yield from self._connection_families()

    def _batch_families(self) -> Iterator[Family]:
        text = "Time a request waited before its batch left"
        yield histogram("batch_wait_seconds", text, self.wait)
        text = "Time from sending a batch to its response"
        yield histogram("batch_execution_seconds", text, self.execution)
        yield histogram("batch_size", "Items in a batch", self.size)
        yield counter("batch_closed", "Batches by the reason they closed", self.closed, "reason")
        yield counter("batch_elements", "Elements of ragged inputs", self.elements, "kind")
        yield counter("batch_broken", "Batches that failed as a whole", self.broken)
        yield counter("batch_restarts", "Restarts of the handler", self.restarts, "reason")
        text = "Batch policies replaced by fixed after a failure"
        yield counter("batch_policy_fallback", text, self.policy_failures)
        text = "Execution time of a single request if it exceeds the longest objective, otherwise 0"
        exceeding_s = self.objective_check.exceeding_s if self.objective_check else 0.0
        yield gauge("batch_exceeding_objective_seconds", text, exceeding_s)

    def _request_families(self) -> Iterator[Family]:
        yield counter("batch_requests", "Requests by terminal state", self.requests, "state")
        yield counter("batch_refusals", "Refused requests by reason", self.refusals, "reason")
        text = "Time to choose the variant for a request that states its needs"
        yield histogram("batch_selection_seconds", text, self.selection)

    def _stream_families(self) -> Iterator[Family]:
        streams, waiting = self._streams()
        yield gauge("batch_streams", "Streams in progress", streams)
        yield gauge("batch_streams_waiting", "Requests waiting to be streamed", waiting)
        yield counter("batch_streams_ended", "Streams by how they ended", self.streams_ended, "how")

    def _connection_families(self) -> Iterator[Family]:
        text = "Responses of the scaler that were refused, and messages that it refused"
        yield counter("batch_plans_refused", text, self._refused_plans(), "reason")
        server = self._server
        text = "Bytes of requests and responses in memory"
        yield gauge("batch_held_bytes", text, server.held_bytes if server else 0)
        text = "Connections closed because a limit was reached"
        closed = server.closed if server else {}
        yield counter("batch_connections_closed", text, closed, "reason")


def _of_batcher(batcher: Batcher) -> Iterator[Family]:
    late = batcher.shedding.late
    yield counter("batch_predicted_late", "Arrivals predicted to be late", late)
    drifts = sum(time.drifts for time in {u.exec_time for u in batcher.upstreams})
    yield counter("batch_exec_time_drifts", "Lasting changes of execution time detected", drifts)
    yield gauge("batch_queue_requests", "Requests waiting", batcher.queued)
    yield gauge("batch_in_flight", "Batches in flight", batcher.in_flight)
