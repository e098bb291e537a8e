"""Traces of requests, by OpenTelemetry: how long one waited, and in which batch it was executed.

A request is traced if its ``traceparent`` says so, and of the others a share. Its span has a child
for its wait, and a link to the span of its batch, which links to all its traced members. What the
handler is passed as ``traceparent`` is the request's span; of several merged ones, the batch's.
Spans are made when a request begins, is sent and ends; nothing is asked of a request that is not
traced but whether it is.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from carpool.errors import ConfigError, Problem

try:
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    problem = Problem("sidecar_traces", "", "the extra traces", 'pip install "carpool[traces]"')
    raise ConfigError([problem]) from error

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span

    from carpool.http.server import Exchange
    from sidecar.core.batch import Batch
    from sidecar.core.request import Request

    Headers = list[tuple[bytes, bytes]]

__all__ = ["Tracing"]

_W3C = TraceContextTextMapPropagator()
_W3C_NAMES = (b"traceparent", b"tracestate")
# Read once: with the clocks read each time, equal times would differ by what passes between the two
# readings, and spans would begin before their parents.
_BOOT_NS = time.time_ns() - time.monotonic_ns()


class Tracing:
    """Traces one sidecar's requests.

    Args:
        endpoint: of a collector, to which spans are posted (OTLP over HTTP).
        share: of the requests that bring no decision, traced.
        function: its name.
    """

    def __init__(self, endpoint: str, share: float, function: str) -> None:
        about = {"service.name": function or "carpool", "telemetry.distro.name": "carpool"}
        self._provider = TracerProvider(resource=Resource.create(about))
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint)))
        self._tracer = self._provider.get_tracer("carpool.sidecar")
        self._share = share
        self._draw = random.Random().random  # noqa: S311 - it need not be secret
        self._batches: dict[int, Span] = {}

    def begin(self, exchange: Exchange, headers: Headers) -> tuple[Span | None, Headers]:
        """The span of a request that has arrived; None: it is not traced.

        Args:
            exchange: the request.
            headers: those of it that are passed on; they come back, of a request that is traced
                with its span as the parent of what the handler does.
        """
        given = [pair for pair in headers if pair[0] in _W3C_NAMES]
        context = _context(given) if given else None
        traced = _sampled(context) if context is not None else None
        if traced is None:
            traced = self._draw() < self._share
        if not traced:
            return None, headers
        name, kind = f"{exchange.method} request", trace.SpanKind.SERVER
        span = self._tracer.start_span(name, context, kind, start_time=_ns(exchange.received))
        kept = [pair for pair in headers if pair[0] not in _W3C_NAMES]
        return span, [*kept, *((n.encode(), v.encode("latin-1")) for n, v in _headers(span))]

    def sent(self, batch: Batch) -> tuple[tuple[str, str], ...]:
        """A batch leaves; what its message says of the trace, if one of its members is traced."""
        spans = [r.payload.span for r in batch.requests if r.payload.span is not None]
        if not spans:
            return ()
        about = {"carpool.requests": len(batch.requests), "carpool.items": batch.item_count}
        span = self._batches[batch.id] = self._tracer.start_span(
            "batch",
            trace.set_span_in_context(spans[0]),
            trace.SpanKind.CLIENT,
            {**about, "carpool.closed": batch.close_reason.value},
            [trace.Link(member.get_span_context()) for member in spans],
            _ns(batch.sent),
        )
        for request in batch.requests:
            if (member := request.payload.span) is not None:
                member.add_link(span.get_span_context())
                self._child("wait", member, request.arrived, batch.sent)
        return _headers(span)

    def returned(self, batch: Batch, outcome: str, now: float) -> None:
        """A batch is back: ``answered``, or how it failed."""
        span = self._batches.pop(batch.id, None)
        if span is None:
            return
        if outcome == "answered":
            self._child("handler", span, now - batch.exec_s, now)
        else:
            span.set_status(trace.StatusCode.ERROR, outcome)
        span.end(_ns(now))

    def ended(
        self,
        request: Request,
        outcome: str,
        status: int | None,
        now: float,
        batch: Batch | None = None,
    ) -> None:
        """A request came to its end; as `RequestLog.ended`."""
        del batch
        payload = request.payload
        span = payload.span
        if span is None:
            return
        span.set_attribute("carpool.outcome", outcome)
        span.set_attribute("carpool.app", request.app)
        span.set_attribute("carpool.call_id", payload.call_id)
        if status is not None:
            span.set_attribute("http.response.status_code", status)
        if outcome not in ("in_time", "late", "cancelled"):
            span.set_status(trace.StatusCode.ERROR, outcome)
        span.end(_ns(now))

    def close(self) -> None:
        """Send what was not sent yet; may take some seconds."""
        self._provider.shutdown()

    def _child(self, name: str, parent: Span, start: float, end: float) -> None:
        context = trace.set_span_in_context(parent)
        child = self._tracer.start_span(name, context, start_time=_ns(start))
        child.end(_ns(end))


def _context(headers: Headers) -> Context:
    """What the caller's headers say of its trace."""
    return _W3C.extract({n.decode(): v.decode("latin-1") for n, v in headers})


def _sampled(context: Context) -> bool | None:
    """Whether the caller's request is traced; None: it does not say."""
    parent = trace.get_current_span(context).get_span_context()
    return parent.trace_flags.sampled if parent.is_valid else None


def _headers(span: Span) -> tuple[tuple[str, str], ...]:
    """The headers that make a span the parent of what is done elsewhere."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, trace.set_span_in_context(span))
    return tuple(carrier.items())


def _ns(at: float) -> int:
    """A monotonic time as nanoseconds since the epoch."""
    return _BOOT_NS + int(at * 1e9)
