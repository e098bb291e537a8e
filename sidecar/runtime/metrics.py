"""The sidecar's metrics. Names and label sets are closed: everything exported is listed here.

Counting happens on the request path, so it is plain additions; Prometheus objects are made only
on request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from sidecar.runtime.histogram import Histogram
from sidecar.runtime.outcomes import OTHERS, Outcomes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from prometheus_client import Metric

    from carpool.http.server import Server
    from carpool.settings import FunctionSettings
    from sidecar.core.batch import Batch
    from sidecar.core.batcher import Batcher
    from sidecar.core.request import Request

__all__ = ["Metrics", "Observer"]

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
_FAILED_FROM = 500  # lowest status that counts as a failure of the function


class Observer(Protocol):
    """Interface of objects that are told how requests end."""

    def ended(
        self,
        request: Request,
        outcome: str,
        status: int | None,
        now: float,
        batch: Batch | None = None,
    ) -> None:
        """Handle the end of a request.

        Args:
            request: the request.
            outcome: as in ``batch_outcomes_total``.
            status: status of its response; None if its caller has left.
            now: monotonic seconds.
            batch: the batch in which it was answered; None if the handler did not answer it.
        """


class Metrics(Collector):
    """The counters of one sidecar; `render` gives Prometheus's text format.

    Args:
        settings: settings of the function; None if it has no applications and objectives.
        observers: told how requests end.
        tracing: told how traced requests end.
    """

    def __init__(
        self,
        settings: FunctionSettings | None = None,
        observers: Sequence[Observer] = (),
        tracing: Observer | None = None,
    ) -> None:
        self._outcomes = Outcomes(settings)
        self._observers = observers
        self._tracing = tracing
        self.wait = Histogram(_SECONDS)
        self.execution = Histogram(_SECONDS)
        self.size = Histogram(_SIZES)
        self.selection = Histogram(_SHORT_SECONDS)
        self.requests: dict[str, int] = {}
        self.refusals: dict[str, int] = {}
        self.closed: dict[str, int] = {}
        self.broken = 0
        self.restarts: dict[str, int] = {}
        self.elements: dict[str, int] = {}
        self.policy_failures = 0
        self.streams_ended: dict[str, int] = {}
        self._streams: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self._batcher: Batcher | None = None
        self._server: Server | None = None
        self._refused_plans: Callable[[], dict[str, int]] = dict
        self._registry = CollectorRegistry()
        self._registry.register(self)

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

    def answered(self, request: Request, status: int, batch: Batch, now: float) -> None:
        """Count a request that the handler answered in ``batch``."""
        failed = status >= _FAILED_FROM
        self._ended("failed" if failed else "done")
        outcome = self._outcomes.answered(request, now, failed=failed)
        for observer in self._observers:
            observer.ended(request, outcome, status, now, batch)
        if self._tracing and request.payload.span is not None:
            self._tracing.ended(request, outcome, status, now, batch)

    def streams(self, request: Request, status: int, now: float) -> None:
        """Count a request whose streamed response has begun; its time is measured until now."""
        failed = status >= _FAILED_FROM
        self._ended("failed" if failed else "done")
        outcome = self._outcomes.answered(request, now, failed=failed)
        for observer in self._observers:
            observer.ended(request, outcome, status, now)
        if self._tracing and request.payload.span is not None:
            self._tracing.ended(request, outcome, status, now)

    def stream_ended(self, how: str) -> None:
        """Count a stream by how it ended: ``complete``, ``cut_off`` or ``caller_left``."""
        self.streams_ended[how] = self.streams_ended.get(how, 0) + 1

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
        for observer in self._observers:
            observer.ended(request, state, status, now)
        if self._tracing and request.payload.span is not None:
            self._tracing.ended(request, state, status, now)

    def refused(self, reason: str) -> None:
        """Count a request by the reason for its refusal, in addition to `unanswered`."""
        self.refusals[reason] = self.refusals.get(reason, 0) + 1

    def refused_unparsed(self, reason: str) -> None:
        """Count a request that was refused before it was parsed."""
        self.refused(reason)
        self._ended("refused")
        self._outcomes.ended(OTHERS, "refused")

    def _ended(self, state: str) -> None:
        self.requests[state] = self.requests.get(state, 0) + 1

    def batch_closed(self, reason: str) -> None:
        """Count a batch by the reason why it closed."""
        self.closed[reason] = self.closed.get(reason, 0) + 1

    def restarted(self, reason: str) -> None:
        """Count an end of the function's process, before it is started again."""
        self.restarts[reason] = self.restarts.get(reason, 0) + 1

    def padded(self, padded: int, useful: int) -> None:
        """Count the elements of a batch of unequal lengths, padding and content."""
        if useful:
            self.elements["padding"] = self.elements.get("padding", 0) + padded
            self.elements["useful"] = self.elements.get("useful", 0) + useful

    def render(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families of `render` for prometheus_client."""
        yield _histogram(
            "batch_wait_seconds", "Time a request waited before its batch left", self.wait
        )
        yield _histogram(
            "batch_execution_seconds", "Time from sending a batch to its response", self.execution
        )
        yield _histogram("batch_size", "Items in a batch", self.size)
        text = "Time to choose the variant for a request that states its needs"
        yield _histogram("batch_selection_seconds", text, self.selection)
        yield _counter("batch_requests", "Requests by terminal state", "state", self.requests)
        yield _counter("batch_refusals", "Refused requests by reason", "reason", self.refusals)
        yield _counter("batch_closed", "Batches by the reason they closed", "reason", self.closed)
        yield from self._outcomes.collect()
        yield _counter("batch_elements", "Elements of ragged inputs", "kind", self.elements)
        broken = CounterMetricFamily("batch_broken", "Batches that failed as a whole")
        broken.add_metric([], self.broken)
        yield broken
        yield _counter("batch_restarts", "Restarts of the handler", "reason", self.restarts)
        fallback = CounterMetricFamily(
            "batch_policy_fallback", "Batch policies replaced by fixed after a failure"
        )
        fallback.add_metric([], self.policy_failures)
        yield fallback
        if self._batcher:
            late = CounterMetricFamily("batch_predicted_late", "Arrivals predicted to be late")
            late.add_metric([], self._batcher.shedding.late)
            yield late
            times = {id(u.exec_time): u.exec_time for u in self._batcher.upstreams}
            family = CounterMetricFamily(
                "batch_exec_time_drifts", "Lasting changes of execution time detected"
            )
            family.add_metric([], sum(time.drifts for time in times.values()))
            yield family
            yield _gauge("batch_queue_requests", "Requests waiting", self._batcher.queued)
            yield _gauge("batch_in_flight", "Batches in flight", self._batcher.in_flight)
        streams, waiting = self._streams()
        yield _gauge("batch_streams", "Streams under way", streams)
        yield _gauge("batch_streams_waiting", "Requests waiting to be streamed", waiting)
        text = "Streams by how they ended"
        yield _counter("batch_streams_ended", text, "how", self.streams_ended)
        refused = self._refused_plans()
        yield _counter(
            "batch_plans_refused", "Responses of the scaler that were refused", "reason", refused
        )
        held_bytes, closed = 0, dict[str, int]()
        if self._server:
            held_bytes, closed = self._server.held_bytes, self._server.closed
        yield _gauge("batch_held_bytes", "Bytes of requests and responses in memory", held_bytes)
        text = "Connections closed because a limit was reached"
        yield _counter("batch_connections_closed", text, "reason", closed)


def _histogram(name: str, text: str, histogram: Histogram) -> Metric:
    buckets, total = histogram.cumulative()
    family = HistogramMetricFamily(name, text)
    family.add_metric([], buckets, sum_value=total)
    return family


def _counter(name: str, text: str, label: str, values: dict[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for key, value in sorted(values.items()):
        family.add_metric([key], value)
    return family


def _gauge(name: str, text: str, value: float) -> Metric:
    family = GaugeMetricFamily(name, text)
    family.add_metric([], value)
    return family
