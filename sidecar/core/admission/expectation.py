"""When requests will be answered, and whether that is too late.

A forecast is made on demand, and kept until the instances or their batches are others.
What is promised on arrival is compared with what came true, so that the margin which is added to
predictions (`shedding`) follows their errors. Where requests are sent is not known here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sidecar.core.admission.forecast import Forecast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.core.admission.shedding import Judgement, Shedding
    from sidecar.core.dispatch import Upstreams
    from sidecar.core.in_flight import InFlight
    from sidecar.core.queue import Queue
    from sidecar.core.request import Request

__all__ = ["Expectation"]


class Expectation:
    """Predicts, promises, and learns from what became of it.

    Args:
        queue: what waits.
        upstreams: the instances.
        in_flight: what they have to do.
        shedding: whether what is predicted to be late is refused.
    """

    __slots__ = ("_forecast", "_in_flight", "_queue", "_shedding", "_stale", "_upstreams")

    def __init__(
        self, queue: Queue, upstreams: Upstreams, in_flight: InFlight, shedding: Shedding
    ) -> None:
        self._queue = queue
        self._upstreams = upstreams
        self._in_flight = in_flight
        self._shedding = shedding
        self._forecast: Forecast | None = None
        self._stale = True

    def changed(self) -> None:
        """The instances, or what they have to do, are others than before."""
        self._stale = True

    def finish(self, now: float) -> float:
        """When an interactive request that arrives now can expect its answer.

        ``now`` while little is known.
        """
        forecast = self._made(now)
        return forecast.finish(self._queue.ahead, now) if forecast else now

    def clear_s(self, now: float) -> float:
        """Seconds in which what waits will have been worked through; 0 while little is known."""
        forecast = self._made(now)
        return forecast.clear_s(self._queue.seats) if forecast else 0.0

    def refuses(self, request: Request, now: float) -> bool:
        """Promise ``request`` an answer; whether it is refused, as that would be too late."""
        forecast = self._made(now) if self._stale else self._forecast  # every request comes here
        shedding, queue = self._shedding, self._queue
        if not request.background:
            judgement, ahead = shedding.interactive, queue.ahead
        else:
            judgement, ahead = shedding.background, queue.seats
        if forecast:
            request.promised = forecast.finish(ahead, now)
        return judgement.refuses(request, shedding.most, now)

    def late(self, budget_s: float, now: float) -> bool:
        """Whether an interactive request that arrives now would take longer than ``budget_s``."""
        forecast = self._made(now)
        if not forecast:
            return budget_s <= 0
        margin_s = self._shedding.interactive.margin(budget_s, now)
        return forecast.finish(self._queue.ahead, now) + margin_s > now + budget_s

    def learn(self, requests: Sequence[Request], answered: float, exec_s: float) -> None:
        """Compare when ``requests`` were answered with what they were promised.

        Requests that were predicted to be late and got no answer are left out: they prove nothing.
        """
        if answered == math.inf:
            requests = [request for request in requests if request.promised <= request.deadline]
        background = [request for request in requests if request.background]
        if background:
            self._learn(self._shedding.background, background, answered, exec_s)
            requests = [request for request in requests if not request.background]
        self._learn(self._shedding.interactive, requests, answered, exec_s)

    def _learn(
        self, judgement: Judgement, requests: Sequence[Request], answered: float, exec_s: float
    ) -> None:
        promised = [request.promised for request in requests if request.promised]
        if promised:
            budget_s = min([request.deadline - request.arrived for request in requests])
            judgement.learn(answered - min(promised), exec_s, budget_s)

    def _made(self, now: float) -> Forecast | None:
        if self._stale:
            self._forecast = Forecast.of(self._upstreams, self._in_flight, now)
            self._stale = False
        return self._forecast
