"""What the provider exposes at ``/metrics``; every name and label set is listed here.

The two request metrics carry the names and labels of the Go provider SDK, so existing dashboards
read them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.metrics_core import Metric

    from carpool.http.server import Server
    from faas_stack.provider.orchestrator import Orchestrator

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LABELS = ("code", "method", "path")
_METHODS = frozenset(("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"))


class _Replicas:
    """Reads the functions when it is scraped."""

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
        for function in self._orchestrator.all():
            name = [f"{function.deployment.service}.{function.deployment.namespace}"]
            wanted.add_metric(name, function.replicas)
            ready.add_metric(name, function.available)
            in_flight.add_metric(name, sum(r.in_flight for r in function.running))
            for code, count in sorted(function.answers.items()):
                answers.add_metric([*name, str(code)], count)
        yield from (wanted, ready, in_flight, answers)

    def describe(self) -> Iterable[Metric]:
        return ()


class _Connections:
    """Reads the listeners when it is scraped."""

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


class Metrics:
    """Counts requests by route, and renders.

    Args:
        orchestrator: has the functions, and adds to what is said of them.
        servers: the listeners, as soon as there are any.
    """

    def __init__(self, orchestrator: Orchestrator[Any], servers: list[Server]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Connections(servers))
        self._registry.register(_Replicas(orchestrator))
        for collector in orchestrator.collectors:
            self._registry.register(collector)
        self._requests = Counter(
            "provider_http_requests",
            "Requests by route, method and status code.",
            _LABELS,
            registry=self._registry,
        )
        self._seconds = Histogram(
            "provider_http_request_duration_seconds",
            "Time from the complete request to its response.",
            _LABELS,
            registry=self._registry,
        )
        self._children: dict[tuple[int, str, str], tuple[Counter, Histogram]] = {}

    def observe(self, code: int, method: str, path: str, seconds: float) -> None:
        """One request was answered; ``path`` is a route, never what a client typed."""
        key = code, method if method in _METHODS else "other", path
        children = self._children.get(key)
        if children is None:
            labels = (str(key[0]), key[1], path)
            children = self._requests.labels(*labels), self._seconds.labels(*labels)
            self._children[key] = children
        children[0].inc()
        children[1].observe(seconds)

    def render(self) -> bytes:
        """The exposition text."""
        return generate_latest(self._registry)
