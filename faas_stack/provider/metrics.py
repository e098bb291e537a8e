"""Metrics that the provider exposes at ``/metrics``, with all their names and label sets.

The two request metrics have the names and labels of the Go provider SDK, so that existing
dashboards can read them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from carpool.prometheus_text import Histogram, counter, gauge, histogram, render

if TYPE_CHECKING:
    from collections.abc import Iterator

    from carpool.http.server import Server
    from carpool.prometheus_text import Family
    from faas_stack.provider.orchestrator import Orchestrator

__all__ = ["Metrics"]

_LABELS = ("code", "method", "path")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_METHODS = frozenset(("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"))


class Metrics:
    """Counts requests by route, and renders all metrics.

    Args:
        orchestrator: Orchestrator of the functions, which may add collectors.
        servers: The listeners; filled once there are any.
    """

    def __init__(self, orchestrator: Orchestrator[Any], servers: list[Server]) -> None:
        self._orchestrator = orchestrator
        self._servers = servers
        self._seconds: dict[tuple[int, str, str], Histogram] = {}

    def observe(self, code: int, method: str, path: str, seconds: float) -> None:
        """Count a response; ``path`` is a route, never text from a client."""
        key = code, method if method in _METHODS else "other", path
        durations = self._seconds.get(key)
        if durations is None:
            durations = self._seconds[key] = Histogram(_SECONDS)
        durations.observe(seconds)

    def render(self) -> bytes:
        """Return the metrics in the text exposition format."""
        return render(self.collect())

    def collect(self) -> Iterator[Family]:
        """Yield the metric families of `render`."""
        yield self._connections()
        yield from self._functions()
        for collector in self._orchestrator.collectors:
            yield from collector.collect()
        yield from self._requests()

    def _connections(self) -> Family:
        reasons = self._servers[0].closed if self._servers else ()
        closed = {reason: sum(each.closed[reason] for each in self._servers) for reason in reasons}
        text = "Connections closed because a limit was reached."
        return counter("provider_connections_closed", text, closed, "reason")

    def _functions(self) -> Iterator[Family]:
        functions = {
            f"{each.deployment.service}.{each.deployment.namespace}": each
            for each in self._orchestrator.all()
        }
        of = "function_name"
        wanted = {name: each.replicas for name, each in functions.items()}
        yield gauge("provider_replicas", "Desired replicas.", wanted, of)
        ready = {name: each.available for name, each in functions.items()}
        yield gauge("provider_replicas_ready", "Ready replicas.", ready, of)
        in_flight = {n: sum(r.in_flight for r in each.running) for n, each in functions.items()}
        yield gauge("provider_requests_in_flight", "Requests in flight.", in_flight, of)
        text = "Calls of functions, by status code; 499: the client disconnected."
        calls = {(n, code): c for n, each in functions.items() for code, c in each.answers.items()}
        yield counter("provider_function_invocations", text, calls, of, "code")
        text = "Calls assigned to a canary that the function answered itself."
        own = {(n, *why): c for n, each in functions.items() for why, c in each.fallbacks.items()}
        yield counter("provider_canary_fallbacks", text, own, of, "canary", "reason")

    def _requests(self) -> Iterator[Family]:
        counts = {labels: seconds.count for labels, seconds in self._seconds.items()}
        text = "Requests by route, method and status code."
        yield counter("provider_http_requests", text, counts, *_LABELS)
        text = "Time from the complete request to its response."
        name = "provider_http_request_duration_seconds"
        yield histogram(name, text, self._seconds, *_LABELS)
