"""Which requests the intake may refuse before they are parsed, and what it tells their callers.

That is while an interactive request with the function's longest objective would be refused.
Requests of class ``batch``, and those that choose a variant, are judged one by one, as always.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from carpool import errors
from carpool.errors import Overloaded, QueueFull
from carpool.http.exchange import whole
from sidecar.core.batch import Refusal
from sidecar.runtime.ingress import WAY

if TYPE_CHECKING:
    from collections.abc import Callable

    from carpool.http.server import Exchange, Server
    from sidecar.core.batcher import Batcher
    from sidecar.core.load import Load
    from sidecar.core.request import Request
    from sidecar.runtime.metrics import Metrics

__all__ = ["Admission", "told"]

_ANSWER_S = 0.01  # how long many are told the same
_UNIQUE = (b"x-start-time", b"x-call-id", b"traceparent")  # a head with one does not come again


def told(refusal: Refusal, batcher: Batcher, now: float) -> errors.CarpoolError:
    """The error for a request that is refused for lack of time or room."""
    waiting, clear_s = batcher.queued, batcher.outlook.clear_s(now)
    if refusal is Refusal.LATE:
        msg = f"{waiting} requests wait: this one would be answered after its deadline"
        return Overloaded(msg, clear_s)
    return QueueFull(f"{waiting} requests wait already", clear_s)


class Admission:
    """Judges requests that are not parsed.

    Args:
        batcher: knows what waits.
        metrics: counts.
        server: knows the date.
        objective_s: the function's longest.
        clock: seconds, on the axis of requests.

    Attributes:
        closed: whether an interactive request would be refused, when that was last asked.
        unread_s: how long what is read now may have lain in its socket.
        load: counts arrivals for a scaler; None without one.
    """

    def __init__(
        self,
        batcher: Batcher,
        metrics: Metrics,
        server: Server,
        objective_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now = clock
        self._batcher = batcher
        self._metrics = metrics
        self._server = server
        self._objective_s = objective_s
        self._why = Refusal.LATE
        self._answer, self._answered = b"", -math.inf
        self.closed = False
        self.unread_s = 0.0
        self.load: Load | None = None

    def refuses(self, waited_s: float) -> bool:
        """Whether an interactive request that was read ``waited_s`` ago would be refused now."""
        left_s = (self._objective_s - self.unread_s - waited_s) * (1 - WAY)
        why = self._batcher.closed(left_s, self._now())
        self._why = why or Refusal.LATE
        return why is not None

    def token(self, exchange: Exchange, request: Request) -> str | None:
        """The application of ``request``, if others with its head may be refused unparsed."""
        judged = request.background or request.deadline == math.inf or request.demand is not None
        if judged or any(exchange.header(name) is not None for name in _UNIQUE):
            return None
        return request.app

    def refusal(self, token: str) -> bytes:
        """Count a request of application ``token``; its answer, empty if it is not refused."""
        now = self._now()
        shedding = self._batcher.shedding
        if self._why is Refusal.LATE and not shedding.refuses(shedding.interactive, now, late=True):
            return b""
        self._metrics.refused(self._why.value)
        if self.load:
            self.load.arrived(token, now)
        if now - self._answered > _ANSWER_S:
            error = told(self._why, self._batcher, now)
            self._answer = whole(errors.answer(error), self._server.date)
            self._answered = now
        return self._answer
