"""Predicts when arriving requests will be answered, and whether that is too late.

A forecast is made on demand for each route, and kept until the instances or their batches change.
The prediction made on arrival is compared with the actual time, so that the margin added to
predictions (`shedding`) follows their errors.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sidecar.core.admission.forecast import Forecast
from sidecar.core.dispatch import ANYWHERE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.core.admission.shedding import ClassShedding, Shedding
    from sidecar.core.dispatch import Route, Upstreams
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

    __slots__ = ("_forecasts", "_in_flight", "_queue", "_shedding", "_upstreams")

    def __init__(
        self, queue: Queue, upstreams: Upstreams, in_flight: InFlight, shedding: Shedding
    ) -> None:
        self._queue = queue
        self._upstreams = upstreams
        self._in_flight = in_flight
        self._shedding = shedding
        self._forecasts: dict[Route, Forecast | None] = {}

    def invalidate(self) -> None:
        """Note that the instances or their batches have changed."""
        self._forecasts.clear()

    def finish_at(self, now: float, route: Route = ANYWHERE) -> float:
        """Return when an interactive request of ``route`` that arrives now can expect its response.

        ``now`` while too little is known.
        """
        forecast = self._forecast(route, now)
        if forecast is None:
            return now
        return forecast.finish_at(self._items_ahead(forecast, background=False), now)

    def backlog_s(self, now: float) -> float:
        """Return the seconds that the instances need for the queue; 0 while too little is known."""
        forecast = self._forecast(ANYWHERE, now)
        return forecast.backlog_s(self._queue.item_count) if forecast else 0.0

    def refuses(self, request: Request, now: float) -> bool:
        """Predict when ``request`` is answered; return whether it is refused as too late."""
        forecast = self._forecast(request.route, now)
        shedding, background = self._shedding, request.background
        if forecast:
            items_ahead = self._items_ahead(forecast, background=background)
            request.predicted_finish = forecast.finish_at(items_ahead, now)
        of_class = shedding.background if background else shedding.interactive
        return of_class.refuses(request, shedding.refused_share_max, now)

    def late(self, budget_s: float, now: float) -> bool:
        """Return whether an interactive request that arrives now would exceed ``budget_s``.

        It is not parsed yet, so that its route is unknown: that of the average request is assumed.
        """
        if not self._forecast(ANYWHERE, now):
            return budget_s <= 0
        margin_s = self._shedding.interactive.margin(budget_s, now)
        return self.finish_at(now) + margin_s > now + budget_s

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

    def _items_ahead(self, forecast: Forecast, *, background: bool) -> float:
        """Return the items that the forecast's instances execute before a request."""
        queue = self._queue
        if forecast.route.weights is None or not queue.item_count:
            return queue.item_count if background else queue.items_ahead
        return queue.items_ahead_at(forecast.share, background=background)

    def _forecast(self, route: Route, now: float) -> Forecast | None:
        try:  # called for every request
            return self._forecasts[route]
        except KeyError:
            forecast = Forecast.of(route, self._upstreams, self._in_flight, now)
            self._forecasts[route] = forecast
            return forecast
