"""Decides whether a request is admitted to the queue."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sidecar.core.batch import Refusal

if TYPE_CHECKING:
    from sidecar.core.admission.finish_predictor import FinishPredictor
    from sidecar.core.admission.shedding import Shedding
    from sidecar.core.queue import Queue
    from sidecar.core.request import Request

__all__ = ["Admission"]


class Admission:
    """Refuses requests that are past their deadline, find a full queue, or are predicted late.

    Args:
        queue: the waiting requests.
        queue_max: most requests waiting; interactive and background requests are counted
            separately.
        finish_predictor: predicts when requests will be answered.
        shedding: decides whether requests predicted to be late are refused.
    """

    __slots__ = ("_finish_predictor", "_queue", "_queue_max", "_shedding")

    def __init__(
        self,
        queue: Queue,
        queue_max: int,
        finish_predictor: FinishPredictor,
        shedding: Shedding,
    ) -> None:
        self._queue = queue
        self._queue_max = queue_max
        self._finish_predictor = finish_predictor
        self._shedding = shedding

    def refusal(self, request: Request, now: float) -> Refusal | None:
        """Count an arrival; return why it is refused, or None if it is admitted."""
        if request.deadline <= now:
            return Refusal.EXPIRED
        queue, most = self._queue, self._queue_max
        if queue.request_count >= most and queue.count_of_class(request) >= most:
            return Refusal.QUEUE_FULL
        predicted = self._shedding.mode != "off" and request.deadline < math.inf
        if predicted and self._finish_predictor.refuses(request, now):
            return Refusal.LATE
        return None

    def would_refuse(self, budget_s: float, now: float) -> bool:
        """Return whether an interactive request with budget ``budget_s`` would be refused now."""
        if self._queue.interactive_count >= self._queue_max:
            return True
        return self._shedding.mode == "on" and self._finish_predictor.late(budget_s, now)

    def refuse_unparsed(self, now: float) -> Refusal | None:
        """Count an interactive request that `would_refuse` rejects; return None if it must pass.

        Some requests must pass from time to time, so that predictions can be corrected.
        """
        if self._queue.interactive_count >= self._queue_max:
            return Refusal.QUEUE_FULL
        shedding = self._shedding
        late = shedding.interactive.refuses_late(shedding.refused_share_max, now)
        return Refusal.LATE if late else None
