"""Predicts when arriving requests will be answered, and whether that is too late.

A forecast is made on demand, and kept until the instances or their batches change. The prediction
made on arrival is compared with the actual time, so that the margin added to predictions
(`shedding`) follows their errors. Routes are not considered here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sidecar.core.admission.forecast import Forecast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.core.admission.shedding import ClassShedding, Shedding
    from sidecar.core.dispatch import Upstreams
    from sidecar.core.in_flight import InFlight
    from sidecar.core.queue import Queue
    from sidecar.core.request import Request

__all__ = ["FinishPredictor"]


class FinishPredictor:
    """Predicts when requests will be answered, and learns from its errors.

    Args:
        queue: the waiting requests.
        upstreams: the instances.
        in_flight: the batches in flight.
        shedding: keeps the margins, and decides which requests are refused.
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

    def invalidate(self) -> None:
        """Note that the instances or their batches have changed."""
        self._stale = True

    def finish_at(self, now: float) -> float:
        """Return when an interactive request that arrives now can expect its response.

        ``now`` while too little is known.
        """
        forecast = self._current(now)
        return forecast.finish_at(self._queue.items_ahead, now) if forecast else now

    def backlog_s(self, now: float) -> float:
        """Return the seconds that the instances need for the queue; 0 while too little is known."""
        forecast = self._current(now)
        return forecast.backlog_s(self._queue.item_count) if forecast else 0.0

    def refuses(self, request: Request, now: float) -> bool:
        """Predict when ``request`` is answered; return whether it is refused as too late."""
        forecast = self._current(now) if self._stale else self._forecast  # called for every request
        shedding, queue = self._shedding, self._queue
        if not request.background:
            of_class, items_ahead = shedding.interactive, queue.items_ahead
        else:
            of_class, items_ahead = shedding.background, queue.item_count
        if forecast:
            request.predicted_finish = forecast.finish_at(items_ahead, now)
        return of_class.refuses(request, shedding.refused_share_max, now)

    def late(self, budget_s: float, now: float) -> bool:
        """Return whether an interactive request that arrives now would exceed ``budget_s``."""
        forecast = self._current(now)
        if not forecast:
            return budget_s <= 0
        margin_s = self._shedding.interactive.margin(budget_s, now)
        return forecast.finish_at(self._queue.items_ahead, now) + margin_s > now + budget_s

    def learn(self, requests: Sequence[Request], answered: float, exec_s: float) -> None:
        """Compare when ``requests`` were answered, ``inf`` for never, with the prediction.

        Requests that were predicted to be late and got no response are left out: they prove
        nothing.
        """
        if answered == math.inf:
            requests = [r for r in requests if r.predicted_finish <= r.deadline]
        background = [request for request in requests if request.background]
        if background:
            self._learn(self._shedding.background, background, answered, exec_s)
            requests = [request for request in requests if not request.background]
        self._learn(self._shedding.interactive, requests, answered, exec_s)

    def _learn(
        self, of_class: ClassShedding, requests: Sequence[Request], answered: float, exec_s: float
    ) -> None:
        predicted = [request.predicted_finish for request in requests if request.predicted_finish]
        if predicted:
            budget_s = min([request.deadline - request.arrived for request in requests])
            of_class.learn(answered - min(predicted), exec_s, budget_s)

    def _current(self, now: float) -> Forecast | None:
        if self._stale:
            self._forecast = Forecast.of(self._upstreams, self._in_flight, now)
            self._stale = False
        return self._forecast
