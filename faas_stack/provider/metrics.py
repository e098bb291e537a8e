"""Metrics that the provider exposes at ``/metrics``, with all their names and label sets.

The two request metrics have the names and labels of the Go provider SDK, so that existing
dashboards can read them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from sidecar.runtime.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.metrics_core import Metric

    from carpool.http.server import Server
    from faas_stack.provider.orchestrator import Orchestrator

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LABELS = ("code", "method", "path")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_METHODS = frozenset(("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"))


class _Replicas:
    """Collector that reads the functions when it is scraped."""

    def __init__(self, orchestrator: Orchestrator[Any]) -> None:
        self._orchestrator = orchestrator

    def collect(self) -> Iterator[Metric]:
        labels = ("function_name",)
        wanted = GaugeMetricFamily("provider_replicas", "Desired replicas.", labels=labels)
        ready = GaugeMetricFamily("provider_replicas_ready", "Ready replicas.", labels=labels)
        in_flight = GaugeMetricFamily(
            "provider_requests_in_flight", "Requests in flight.", labels=labels
        )
        answers = CounterMetricFamily(
            "provider_function_invocations",
            "Calls of functions, by status code; 499: the client disconnected.",
            labels=(*labels, "code"),
        )
        fallbacks = CounterMetricFamily(
            "provider_canary_fallbacks",
            "Calls that a function answered itself although it was its canary's turn.",
            labels=(*labels, "canary", "reason"),
        )
        for function in self._orchestrator.all():
            name = [f"{function.deployment.service}.{function.deployment.namespace}"]
            wanted.add_metric(name, function.replicas)
            ready.add_metric(name, function.available)
            in_flight.add_metric(name, sum(r.in_flight for r in function.running))
            for code, count in sorted(function.answers.items()):
                answers.add_metric([*name, str(code)], count)
            for said, count in sorted(function.fallbacks.items()):
                fallbacks.add_metric([*name, *said], count)
        yield from (wanted, ready, in_flight, answers, fallbacks)

    def describe(self) -> Iterable[Metric]:
        return ()


class _Connections:
    """Collector that reads the listeners when it is scraped."""

    def __init__(self, servers: list[Server]) -> None:
        self._servers = servers

    def collect(self) -> Iterator[Metric]:
        closed = CounterMetricFamily(
            "provider_connections_closed",
            "Connections closed because a limit was reached.",
            labels=("reason",),
        )
        for reason in self._servers[0].closed if self._servers else ():
            closed.add_metric([reason], sum(server.closed[reason] for server in self._servers))
        yield closed

    def describe(self) -> Iterable[Metric]:
        return ()


class _Requests:
    """Requests by status, method and route: counted by plain additions, rendered when scraped."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[int, str, str], Histogram] = {}

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "provider_http_requests",
            "Requests by route, method and status code.",
            labels=_LABELS,
        )
        durations = HistogramMetricFamily(
            "provider_http_request_duration_seconds",
            "Time from the complete request to its response.",
            labels=_LABELS,
        )
        for (code, method, path), seconds in self.seconds.items():
            labels = (str(code), method, path)
            buckets, total_s = seconds.cumulative()
            requests.add_metric(labels, buckets[-1][1])
            durations.add_metric(labels, buckets, sum_value=total_s)
        yield from (requests, durations)

    def describe(self) -> Iterable[Metric]:
        return ()


class Metrics:
    """Counts requests by route, and renders all metrics.

    Args:
        orchestrator: Orchestrator of the functions, which may add collectors.
        servers: The listeners; filled once there are any.
    """

    def __init__(self, orchestrator: Orchestrator[Any], servers: list[Server]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Connections(servers))
        self._registry.register(_Replicas(orchestrator))
        for collector in orchestrator.collectors:
            self._registry.register(collector)
        self._requests = _Requests()
        self._registry.register(self._requests)

    def observe(self, code: int, method: str, path: str, seconds: float) -> None:
        """Count a response; ``path`` is a route, never text from a client."""
        key = code, method if method in _METHODS else "other", path
        durations = self._requests.seconds.get(key)
        if durations is None:
            durations = self._requests.seconds[key] = Histogram(_SECONDS)
        durations.observe(seconds)

    def render(self) -> bytes:
        """Return the metrics in the text exposition format."""
        return generate_latest(self._registry)
