"""From an HTTP exchange to a request of the core: compat key, deadline, and the head to pass on.

The deadline budget is the objective of the function (or of the application that the request
names), less the time the request has already spent since the gateway stamped it, and never longer
than the caller's own ``X-Timeout``. The stamp is a hint: clocks differ, so only a plausible one
counts. Background requests (``X-Carpool-Class: batch``) have no objective, only what they ask for.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from carpool import durations
from carpool.errors import BadRequest
from carpool.strict import nearest
from sidecar.core.request import Request
from sidecar.runtime.seats import seats

if TYPE_CHECKING:
    from collections.abc import Callable

    from carpool.http.server import Exchange
    from carpool.settings import FunctionSettings

__all__ = ["Ingress", "Rider", "fingerprint"]

# What a handler may want to know of a request. The rest (hop-by-hop fields, proxies' notes) would
# only make heads differ, and every distinct head is parsed again on the other side.
PASSED_HEADERS = frozenset(
    (
        b"accept",
        b"content-type",
        b"inference-header-content-length",
        b"traceparent",
        b"tracestate",
        b"x-call-id",
        b"x-carpool-app",
    )
)

_READ_HEADERS = PASSED_HEADERS | {
    b"x-timeout",
    b"x-start-time",
    b"x-carpool-class",
    b"x-carpool-explain",
}
_CLASSES = {b"interactive": False, b"batch": True}
_OLDEST_STAMP_S = 300.0


class Rider(NamedTuple):
    """A request's payload: how to answer it, and the head that travels with its body."""

    exchange: Exchange
    head: bytes
    call_id: str
    explain: bool


def fingerprint(request: Request) -> int:
    """What makes a request recognisable when a caller sends it again: target and body."""
    exchange = request.payload.exchange
    return hash((exchange.method, exchange.target, exchange.body))


class Ingress:
    """Reads exchanges of one function.

    Args:
        settings: the function's; objective and applications are used.
        wall_clock: seconds since the epoch, to compare with the gateway's stamp.
    """

    def __init__(self, settings: FunctionSettings, wall_clock: Callable[[], float]) -> None:
        self._slo_s = settings.slo_s if settings.slo_s is not None else math.inf
        self._app_slo_s = {app.name: app.slo_s for app in settings.apps}
        self._wall_clock = wall_clock
        self._ids = 0

    def read(self, exchange: Exchange) -> Request:
        """The request that ``exchange`` carries.

        Raises:
            BadRequest: an ill-formed ``X-Timeout``, an application nobody declared, or a class
                that does not exist.
        """
        first_line = f"{exchange.method} {exchange.target}\n".encode("latin-1", "replace")
        lines, found = [first_line], {}
        for name, value in exchange.headers:
            if name in _READ_HEADERS:
                found[name] = value  # the gateway adds its stamp after a client's: the last counts
                if name in PASSED_HEADERS:
                    lines.append(b"%b: %b\n" % (name, value))
        read = found.get
        app = read(b"x-carpool-app", b"*").decode("latin-1")
        background = _background(read(b"x-carpool-class", b"interactive"))
        budget_s = math.inf if background else self._objective_s(app)
        if b"x-start-time" in found:
            budget_s -= self._spent_s(found[b"x-start-time"])
        if b"x-timeout" in found:
            budget_s = min(budget_s, _timeout_s(found[b"x-timeout"].decode("latin-1")))
        call_id = read(b"x-call-id", b"").decode("latin-1")
        explain = read(b"x-carpool-explain") == b"1"
        self._ids += 1
        return Request(
            self._ids,
            (first_line, read(b"content-type", b"")),
            exchange.received,
            deadline=exchange.received + budget_s,
            seats=seats(exchange.target, exchange.body),
            size_bytes=len(exchange.body),
            background=background,
            app=app,
            payload=Rider(exchange, b"".join(lines), call_id, explain),
        )

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


def _background(klass: bytes) -> bool:
    """Whether a request of this class rides in seats that others leave empty."""
    if klass not in _CLASSES:
        msg = f"X-Carpool-Class = {klass[:80].decode('latin-1')!r}: expected interactive or batch"
        raise BadRequest(msg)
    return _CLASSES[klass]


def _timeout_s(text: str) -> float:
    """The caller's limit; like the watchdog we let it shorten ours, and ignore zero or less."""
    try:
        timeout_s = durations.parse(text)
    except ValueError as error:
        msg = f"X-Timeout = {text[:80]!r}: expected a duration such as 500ms or 2s"
        raise BadRequest(msg) from error
    return timeout_s if timeout_s > 0 else math.inf
