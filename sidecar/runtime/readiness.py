"""Health, readiness and metrics: the sidecar's responses about itself.

Probes are answered at once and never wait in the queue. Answering has no side effects.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from carpool import wire
from carpool.errors import NotFound, Overloaded
from carpool.http import call_frames, call_server
from carpool.process import ready_notice
from carpool.prometheus_text import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable

    from carpool.http.server import Exchange
    from sidecar.runtime.metrics import Metrics
    from sidecar.runtime.upstreams import FunctionUpstreams

__all__ = ["Readiness"]

_ALLOWED = (("allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),)


class Readiness:
    """Answers ``/_/health``, ``/_/ready``, ``/_/calls``, ``/metrics``, and ``OPTIONS``.

    Args:
        upstreams: the instances.
        metrics: the metrics to show.

    Attributes:
        draining: whether the sidecar is about to stop.
        failing: returns why the function cannot be started; empty while it can.
        crashes: returns how often the handler ended by itself, and how the last time; else empty.
        front_not_ready: returns why a front is not ready yet; None if this is not a front.
    """

    def __init__(self, upstreams: FunctionUpstreams, metrics: Metrics) -> None:
        self._upstreams = upstreams
        self._metrics = metrics
        self.draining = False
        self.failing: Callable[[], str] = str
        self.crashes: Callable[[], str] = str
        self.front_not_ready: Callable[[], str] | None = None

    def answer(self, exchange: Exchange) -> None:
        """Answer a request to the sidecar itself.

        Raises:
            NotFound: unknown path.
        """
        path = exchange.path
        if exchange.method == "OPTIONS":  # handlers do not know which methods exist
            exchange.reply(204, content_type="", headers=_ALLOWED)
        elif path == "/_/health":
            exchange.reply(503 if self.draining else 200, b"OK", "text/plain")
        elif path == "/_/ready":
            reason = self._not_ready()
            body = reason.encode() or b"OK"
            headers = [(wire.REPEATABLE_HEADER, "true"), (wire.CALLS_HEADER, "true")]
            if self.failing():
                headers.append(("x-carpool-failing", "true"))
            if crashes := self.crashes():
                plain = crashes.encode("ascii", "replace").decode()
                headers.append((wire.CRASHES_HEADER, plain))
            concurrency = sum(
                i.upstream.concurrency for i in self._upstreams if i.upstream.concurrency > 1
            )
            if concurrency:  # for the front, whose batches are forwarded
                headers.append((wire.CONCURRENCY_HEADER, str(concurrency)))
            rule = next((i.stream_rule for i in self._upstreams if i.stream_rule), None)
            if rule is not None:
                headers.append((wire.STREAM_RULE_HEADER, rule.header))
            exchange.reply(503 if reason else 200, body, "text/plain; charset=utf-8", headers)
        elif path == "/metrics":
            exchange.reply(200, self._metrics.render(), CONTENT_TYPE)
        elif path == call_frames.PATH:
            call_server.accept(exchange)
        else:
            msg = f"{path}: expected /_/health, /_/ready or /metrics"
            raise NotFound(msg)

    def tell_if_ready(self) -> None:
        """If ready, notify the process that started this sidecar, so that it need not probe."""
        if not self._not_ready():
            ready_notice.tell()

    def does_not_start(self) -> Overloaded:
        """Return the error that callers get while the function cannot be started."""
        return Overloaded(f"the function does not start: {self.failing()}", retry_after_s=1.0)

    def _not_ready(self) -> str:
        if self.draining:
            return "draining"
        if self.front_not_ready:
            return self.front_not_ready()
        now = time.monotonic()
        if any(instance.upstream.available(now) for instance in self._upstreams):
            return ""
        reasons = [instance.reason or "temporarily ejected" for instance in self._upstreams]
        return self.failing() or "; ".join(reasons) or "no instance"
