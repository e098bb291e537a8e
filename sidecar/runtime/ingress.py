"""Turns HTTP exchanges into requests of the core: compat key, deadline, and the head to pass on.

The budget of a request is the objective of the function (or of the application that the request
names), less the time that has already passed, and never longer than the caller's own ``X-Timeout``,
Triton's parameter ``timeout`` or a gRPC call's deadline.
Time has passed since the gateway's stamp (a hint: clocks differ, so only a plausible stamp counts),
or at least while the request was unread in its socket. Background requests, those of
``X-Carpool-Class: batch``, have no objective, only their own limit. A small share of the budget is
reserved for sending the response: the deadline is that much earlier.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool import durations, wire
from carpool.errors import BadRequest
from carpool.validation.problems import nearest
from carpool.variants.demand import VariantDemand
from sidecar.core.request import DEADLINE_SHARE, Request
from sidecar.runtime import body_parameters, variant_headers
from sidecar.runtime.item_count import count_items
from sidecar.runtime.merge_backoff import MergeBackoff
from sidecar.runtime.merging import ENTRIES_MAX, Message, protocol_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from carpool.http.exchange import Exchange, KnownHead
    from carpool.settings import FunctionSettings
    from sidecar.runtime.merging.protocol import Mergeable
    from sidecar.runtime.tracing import OpenSpan, Tracing

__all__ = ["Ingress", "Payload", "RequestTemplate", "fingerprint"]

# Headers that a handler may use. The rest (hop-by-hop fields, what proxies add) would only make
# heads differ, and every distinct head is parsed again on the other side.
_JSON_LENGTH = wire.JSON_LENGTH_HEADER.encode()
_CALLED = wire.CALLED_HEADER.encode()
_PASSED = frozenset(
    (
        b"accept",
        b"content-encoding",
        b"content-type",
        _JSON_LENGTH,
        b"x-carpool-app",
        _CALLED,
    )
)
_READ = (
    frozenset((b"x-timeout", b"x-carpool-class", b"x-carpool-explain")) | variant_headers.HEADERS
)
_NOT_AGREED = (_JSON_LENGTH, _CALLED)
_REPEATED = _PASSED | _READ  # callers often repeat the same values
_PASSED_ONCE = frozenset(name.encode() for name in wire.OWN_HEADERS)
_KNOWN = _REPEATED | _PASSED_ONCE | {b"x-start-time"}

_CLASSES = {b"interactive": False, b"batch": True}
_OLDEST_STAMP_S = 300.0
_TEMPLATES_MAX = 1024
_TEMPLATE_BYTES_MAX = 2048  # of target and headers; larger ones rarely repeat and would fill memory

_Pairs = list[tuple[bytes, bytes]]


@dataclass(slots=True, frozen=True)  # attributes of named tuples take longer to read
class RequestTemplate:
    """The values that requests with the same target and repeated headers share; computed once."""

    key: tuple[str, str, bytes]
    head: bytes
    agreed: bytes  # the part of the head in which merged requests must agree
    app: str
    counted_as: str  # see `Request`
    background: bool
    objective_s: float
    timeout_s: float  # the caller's own limit, counted from arrival
    explain: bool
    header_demand: VariantDemand | None  # requirements in its headers
    demand: VariantDemand | None  # the same, with those of its application
    names: tuple[str, str]  # names of model and version in the path
    json_length: bytes
    coding: bytes  # content encoding of the body; empty: none
    app_demand: VariantDemand | None  # requirements of its application


@dataclass(slots=True)
class Payload:
    """A request's payload: how to answer it, and the head that is sent with its body."""

    exchange: Exchange
    head: bytes
    call_id: str
    template: RequestTemplate
    mergeable: Mergeable | None = None  # set if requests are merged
    spent_s: float = 0.0  # time spent before it arrived here
    span: OpenSpan | None = None  # set if it is traced


def fingerprint(request: Request) -> int:
    """Return a hash of method, target and body, equal for a request that is sent again."""
    exchange = request.payload.exchange
    return hash((exchange.method, exchange.target, exchange.body))


class Ingress:
    """Reads exchanges of one function.

    Args:
        settings: settings of the function; objective and applications are used.
        wall_clock: seconds since the epoch, to compare with the gateway's stamp.
        backoff: knows which requests are not merged for a while.
        tracing: traces some requests; None if none are traced.
    """

    def __init__(
        self,
        settings: FunctionSettings,
        wall_clock: Callable[[], float],
        backoff: MergeBackoff | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self.tracing = tracing
        self._slo_s = settings.slo_s if settings.slo_s is not None else math.inf
        self._app_slo_s = {app.name: app.slo_s for app in settings.apps}
        self._app_accuracy = {app.name: app.accuracy or 0.0 for app in settings.apps}
        self._wall_clock = wall_clock
        self._protocol = protocol_of(settings.wire)
        self._merged_max = min(settings.batch_max, ENTRIES_MAX)
        self._backoff = backoff or MergeBackoff()
        self._templates: dict[
            tuple[str, str, tuple[tuple[bytes, bytes], ...]], RequestTemplate
        ] = {}
        self._ids = 0

    def read(self, exchange: Exchange, unread_s: float = 0.0) -> Request:
        """Return the request that ``exchange`` carries.

        Args:
            exchange: as it was read.
            unread_s: how long it may have been in its socket before.

        Raises:
            BadRequest: an ill-formed ``X-Timeout`` or demand, an unknown application or
                class.
        """
        known_head = exchange.known_head
        derived = known_head.derived if known_head is not None else None
        if derived is None:
            derived = self._derive(known_head or exchange)
            if known_head is not None:
                known_head.derived = derived
        template, once = derived
        if exchange.own_headers:
            once = [*once, *exchange.own_headers]
        demand, timeout_s = template.demand, min(template.timeout_s, exchange.timeout_s)
        if template.names[0]:
            length = template.json_length
            text = body_parameters.plain(exchange.body, template.coding, length)
            timeout_s = min(timeout_s, body_parameters.timeout_s(text, length))
            in_body = variant_headers.in_body(text, length)
            if in_body is not None:
                both = variant_headers.stricter(template.header_demand, in_body)
                demand = self._complete(both, template.app, template.objective_s)
        objective_s = template.objective_s if demand is None else demand.latency_s
        span = None
        if self.tracing:
            span, once = self.tracing.begin(exchange, once)
        spent_s, head, call_id = unread_s, template.head, ""
        if once:
            own_lines, call_id, stamp = _own(once)
            head += own_lines
            spent_s = max(unread_s, self._spent_s(stamp))
        objective_s -= spent_s
        arrived = exchange.received
        budget_s = objective_s if objective_s < timeout_s else timeout_s  # noqa: FURB136 - no call
        self._ids += 1
        compat_key: Hashable = template.key
        mergeable = None
        if self._protocol:
            mergeable = self._mergeable(exchange, template)
            item_count = mergeable.item_count if mergeable else 1
            compat_key = self._merge_key(template, mergeable, arrived)
        else:
            item_count = count_items(exchange.target, exchange.body)
        request = Request(self._ids, compat_key, arrived)  # keywords would take half as long again
        request.deadline = arrived + budget_s * DEADLINE_SHARE
        request.item_count = item_count
        request.size_bytes = len(exchange.body) + len(head)
        request.background = template.background
        request.app = template.app
        request.payload = Payload(exchange, head, call_id, template, mergeable, spent_s, span)
        request.counted_as = template.counted_as
        request.due = arrived + budget_s
        request.demand = demand
        return request

    def _derive(self, exchange: Exchange | KnownHead) -> tuple[RequestTemplate, _Pairs]:
        """Return what depends on the head alone: its template, and the request's own headers."""
        repeated: _Pairs = []
        once: _Pairs = []
        for pair in exchange.headers:
            name = pair[0]
            if name in _KNOWN:
                (repeated if name in _REPEATED else once).append(pair)
        key = (exchange.method, exchange.target, tuple(repeated))
        return self._templates.get(key) or self._new_template(*key), once

    def _mergeable(self, exchange: Exchange, template: RequestTemplate) -> Mergeable | None:
        """Return the mergeable content of a request; None if it must be sent alone."""
        if self._protocol is None or exchange.method != "POST" or template.coding:
            return None
        message = Message(exchange.body, template.json_length)
        return self._protocol.read(exchange.target, message, self._merged_max)

    def _merge_key(
        self, template: RequestTemplate, mergeable: Mergeable | None, now: float
    ) -> Hashable:
        """Return a key; requests with equal keys can be merged, as they agree in all else."""
        if mergeable and mergeable.item_count <= self._merged_max:
            key = template.agreed, mergeable.agreement
            if not self._backoff.travels_alone(key, now):
                return key
        return template.head, self._ids

    def _new_template(
        self, method: str, target: str, headers: tuple[tuple[bytes, bytes], ...]
    ) -> RequestTemplate:
        """Make a template, and store it unless it is large."""
        template = self._template(method, target, headers)
        if len(target) + sum(len(v) for _, v in headers) <= _TEMPLATE_BYTES_MAX:
            if len(self._templates) >= _TEMPLATES_MAX:
                self._templates.clear()
            self._templates[method, target, headers] = template
        return template

    def _template(
        self, method: str, target: str, headers: tuple[tuple[bytes, bytes], ...]
    ) -> RequestTemplate:
        first_line = f"{method} {target}\n".encode("latin-1", "replace")
        passed = [pair for pair in headers if pair[0] in _PASSED]
        read = dict(headers).get
        app = read(b"x-carpool-app", b"*").decode("latin-1")
        background = _background(read(b"x-carpool-class", b"interactive"))
        timeout = read(b"x-timeout")
        own_objective_s = self._objective_s(app)  # refuses an unknown application of any class
        objective_s = math.inf if background else own_objective_s
        header_demand = variant_headers.in_headers(headers)
        return RequestTemplate(
            key=(method, target.partition("?")[0], read(b"content-type", b"")),
            head=first_line + _lines(passed),
            agreed=first_line + _lines(pair for pair in passed if pair[0] not in _NOT_AGREED),
            app=app,
            counted_as=app if app in self._app_slo_s else "*",
            background=background,
            objective_s=objective_s,
            timeout_s=_timeout_s(timeout.decode("latin-1")) if timeout is not None else math.inf,
            explain=read(b"x-carpool-explain") == b"1",
            header_demand=header_demand,
            demand=self._complete(header_demand, app, objective_s),
            names=variant_headers.names(target),
            json_length=read(_JSON_LENGTH, b""),
            coding=read(b"content-encoding", b""),
            app_demand=self._complete(VariantDemand(), app, objective_s),
        )

    def _complete(
        self, demand: VariantDemand | None, app: str, objective_s: float
    ) -> VariantDemand | None:
        """Return a demand completed with the requirements and objective of its application.

        A latency that the request names replaces the objective, even if it is longer.
        """
        if demand is None:
            return None
        latency_s = objective_s if demand.latency_s == math.inf else demand.latency_s
        accuracy = max(demand.accuracy, self._app_accuracy.get(app, 0.0))
        return demand._replace(latency_s=latency_s, accuracy=accuracy)

    def _objective_s(self, app: str) -> float:
        if app == "*" or not self._app_slo_s:
            return self._slo_s
        if app not in self._app_slo_s:
            known = ", ".join(sorted(self._app_slo_s))
            msg = f"X-Carpool-App = {app[:80]!r}: expected one of {known}"
            hint = nearest(app, self._app_slo_s)
            raise BadRequest(f"{msg}; {hint}" if hint else msg)
        return self._app_slo_s[app]

    def _spent_s(self, stamp: bytes) -> float:
        if not stamp.isdigit() or len(stamp) > 20:  # noqa: PLR2004 - nanoseconds fit in 20 digits
            return 0.0
        spent_s = self._wall_clock() - int(stamp) / 1e9
        return spent_s if 0 < spent_s < _OLDEST_STAMP_S else 0.0


def _lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join([b"%b: %b\n" % pair for pair in headers])


def _own(headers: _Pairs) -> tuple[bytes, str, bytes]:
    """Return the lines to pass on of a request's own headers, its call id and its time stamp.

    The last time stamp counts: the gateway adds its own at the end.
    """
    lines, call_id, stamp = b"", "", b""
    for name, value in headers:
        if name == b"x-start-time":
            stamp = value
        elif name in _PASSED_ONCE:
            lines += b"%b: %b\n" % (name, value)
            if name == b"x-call-id":
                call_id = value.decode("latin-1")
    return lines, call_id, stamp


def _background(klass: bytes) -> bool:
    """Return whether a request of this class gets only the places that others leave."""
    if klass not in _CLASSES:
        msg = f"X-Carpool-Class = {klass[:80].decode('latin-1')!r}: expected interactive or batch"
        raise BadRequest(msg)
    return _CLASSES[klass]


def _timeout_s(text: str) -> float:
    """Parse the caller's limit in seconds; ``inf`` for zero or less, as in the watchdog."""
    try:
        timeout_s = durations.parse(text)
    except ValueError as error:
        msg = f"X-Timeout = {text[:80]!r}: expected a duration such as 500ms or 2s"
        raise BadRequest(msg) from error
    return timeout_s if timeout_s > 0 else math.inf
