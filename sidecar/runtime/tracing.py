"""Traces of requests, by OpenTelemetry: how long one waited, and in which batch it was executed.

A request is traced if its ``traceparent`` says so; of requests without one a share is traced. Its
span has a child for its wait, and a link to the span of its batch, which links to all its traced
members. The handler gets the request's span as ``traceparent``; if several are merged, the batch's.

Which requests are traced is decided first, and nothing is done for the others. While traced
requests are in progress, only identifiers are made. A span is made when it ends, from what is known
then, and handed to the SDK, which sends it: a tracer's own spans, which can be written to at any
time from any thread, cost several times as much.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from carpool.errors import ConfigError, Problem

try:
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    problem = Problem("sidecar_traces", "", "the extra traces", 'pip install "carpool[traces]"')
    raise ConfigError([problem]) from error

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext
    from opentelemetry.util.types import AttributeValue

    from carpool.http.server import Exchange
    from sidecar.core.batch import Batch
    from sidecar.core.request import Request

    Headers = list[tuple[bytes, bytes]]

__all__ = ["OpenSpan", "Tracing"]

_W3C = TraceContextTextMapPropagator()
_TRACEPARENT = b"traceparent"
_W3C_NAMES = (_TRACEPARENT, b"tracestate")
_SAMPLED = trace.TraceFlags(trace.TraceFlags.SAMPLED)
_SCOPE = InstrumentationScope("carpool.sidecar")
_UNSET, _ERROR = trace.Status(), trace.StatusCode.ERROR
_FINE = ("in_time", "late", "cancelled")
# Read once: if both clocks were read for each span, equal times would differ by the time between
# the two readings, and spans could begin before their parents.
_BOOT_NS = time.time_ns() - time.monotonic_ns()


@dataclass(slots=True)
class OpenSpan:
    """A span that has not ended.

    Attributes:
        name: its name.
        kind: its role, such as server or client.
        context: its identifiers.
        parent: the span that it is a part of, if there is one.
        start: monotonic seconds.
        links: related spans.
        attributes: its attributes so far.
    """

    name: str
    kind: trace.SpanKind
    context: SpanContext
    parent: SpanContext | None
    start: float
    links: list[trace.Link] = field(default_factory=list)
    attributes: dict[str, AttributeValue] = field(default_factory=dict)

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Headers that make it the parent of spans elsewhere."""
        ids = self.context
        parent = ("traceparent", f"00-{ids.trace_id:032x}-{ids.span_id:016x}-01")
        state = ids.trace_state
        return (parent, ("tracestate", state.to_header())) if state else (parent,)


class _Source(Resource):
    """The resource of all spans. Its hash, needed for each span that is sent, is computed once."""

    def __init__(self, about: Resource) -> None:
        super().__init__(about.attributes, about.schema_url)
        self._hash = super().__hash__()

    def __hash__(self) -> int:
        return self._hash


class Tracing:
    """Traces one sidecar's requests.

    Args:
        endpoint: address of a collector, to which spans are posted (OTLP over HTTP).
        share: share of requests to trace, among those that do not decide it themselves.
        function: name of the function.
    """

    def __init__(self, endpoint: str, share: float, function: str) -> None:
        about = {"service.name": function or "carpool", "telemetry.distro.name": "carpool"}
        self._resource = _Source(Resource.create(about))
        self._processor = BatchSpanProcessor(OTLPSpanExporter(endpoint))
        self._share = share
        self._random = random.Random()  # noqa: S311 - it need not be secret
        self._draw = self._random.random
        self._open = 0  # requests that are traced, under way
        self._batches: dict[int, OpenSpan] = {}

    def begin(self, exchange: Exchange, headers: Headers) -> tuple[OpenSpan | None, Headers]:
        """Return the span of a request that has arrived, None if it is not traced, and its headers.

        Args:
            exchange: the request.
            headers: headers to pass on; returned unchanged, or with the span of a traced request as
                the parent of the handler's spans.
        """
        parent = None
        for name, _ in headers:
            if name == _TRACEPARENT:
                parent = _parent(headers)
                break
        traced = self._draw() < self._share if parent is None else parent.trace_flags.sampled
        if not traced:
            return None, headers
        self._open += 1
        about = f"{exchange.method} request", trace.SpanKind.SERVER
        span = self._span(*about, parent, exchange.received)
        kept = [pair for pair in headers if pair[0] not in _W3C_NAMES]
        return span, [*kept, *((n.encode(), v.encode("latin-1")) for n, v in span.headers)]

    def sent(self, batch: Batch) -> tuple[tuple[str, str], ...]:
        """Begin the span of a batch; return its headers. Empty if no member is traced."""
        if not self._open:
            return ()
        members = [request for request in batch.requests if request.payload.span is not None]
        if not members:
            return ()
        first = members[0].payload.span
        span = self._span("batch", trace.SpanKind.CLIENT, first.context, batch.sent)
        span.links = [trace.Link(member.payload.span.context) for member in members]
        span.attributes = {
            "carpool.requests": len(batch.requests),
            "carpool.items": batch.item_count,
            "carpool.closed": batch.close_reason.value,
        }
        self._batches[batch.id] = span
        link = trace.Link(span.context)
        for request in members:
            request.payload.span.links.append(link)
            self._child("wait", request.payload.span, request.arrived, batch.sent)
        return span.headers

    def returned(self, batch: Batch, outcome: str, now: float) -> None:
        """End the span of a batch that came back: ``answered``, or how it failed."""
        span = self._batches.pop(batch.id, None)
        if span is None:
            return
        if outcome == "answered":
            self._child("handler", span, now - batch.exec_s, now)
            self._end(span, now)
        else:
            self._end(span, now, outcome)

    def ended(self, request: Request, outcome: str, status: int | None, now: float) -> None:
        """End the span of a traced request; as `RequestLog.ended`."""
        span = request.payload.span
        self._open -= 1
        span.attributes = {
            "carpool.outcome": outcome,
            "carpool.app": request.app,
            "carpool.call_id": request.payload.call_id,
        }
        if status is not None:
            span.attributes["http.response.status_code"] = status
        self._end(span, now, "" if outcome in _FINE else outcome)

    def close(self) -> None:
        """Send the remaining spans; may take some seconds."""
        self._processor.shutdown()  # type: ignore[no-untyped-call]

    def _child(self, name: str, parent: OpenSpan, start: float, end: float) -> None:
        self._end(self._span(name, trace.SpanKind.INTERNAL, parent.context, start), end)

    def _span(
        self, name: str, kind: trace.SpanKind, parent: SpanContext | None, start: float
    ) -> OpenSpan:
        bits = self._random.getrandbits
        trace_id, state = (parent.trace_id, parent.trace_state) if parent else (bits(128), None)
        context = trace.SpanContext(trace_id, bits(64), False, _SAMPLED, state)  # noqa: FBT003
        return OpenSpan(name, kind, context, parent, start)

    def _end(self, span: OpenSpan, now: float, fault: str = "") -> None:
        """Hand a span over to be sent; ``fault`` is how its request or batch failed, if it did."""
        status = trace.Status(_ERROR, fault) if fault else _UNSET
        ended = ReadableSpan(
            span.name,
            span.context,
            span.parent,
            self._resource,
            span.attributes,
            (),
            span.links,
            span.kind,
            status=status,
            start_time=_ns(span.start),
            end_time=_ns(now),
            instrumentation_scope=_SCOPE,
        )
        self._processor.on_end(ended)


def _parent(headers: Headers) -> SpanContext | None:
    """Return the caller's span from its headers; None if they cannot be read."""
    given = {n.decode(): v.decode("latin-1") for n, v in headers if n in _W3C_NAMES}
    parent = trace.get_current_span(_W3C.extract(given)).get_span_context()
    return parent if parent.is_valid else None


def _ns(at: float) -> int:
    """Convert a monotonic time to nanoseconds since the epoch."""
    return _BOOT_NS + int(at * 1e9)
