"""An application that sends requests; what happens for every single one of them is here.

A step of the batcher changes nothing while nobody is due and nothing is full, or no instance is
free (`sidecar.core.batcher`: a batch closes only when an instance is there to take it), so it is
asked for one only otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.core.request import Request

if TYPE_CHECKING:
    from scaler.scenarios.scenario import App
    from simulator.simulated_sidecar import SimulatedSidecar

__all__ = ["SendingApplication"]


class SendingApplication:
    """An application that sends its requests to a lane.

    Attributes:
        app: The application.
    """

    __slots__ = ("_admit", "_lane", "_name", "_slo_s", "app")

    def __init__(self, lane: SimulatedSidecar, app: App) -> None:
        self.app = app
        self._lane = lane
        self._admit = lane.batcher.admit
        self._name = app.name
        self._slo_s = app.slo_s

    def arrive(self, now: float) -> None:
        """One request."""
        lane = self._lane
        now -= lane.skipped_s
        lane.requests = number = lane.requests + 1
        request = Request(number, None, now, deadline=now + self._slo_s, app=self._name)
        if self._admit(request, now) is not None:
            lane.served.refused += 1
            lane.served.miss(self._name)
            return
        lane.waiting += 1
        if not lane.free:
            due = request.deadline
            leaves = lane.crowded(now)
        else:
            due = min(request.depart, request.deadline)
            leaves = due <= now or lane.waiting >= lane.least
        if leaves:
            lane.step(now)
        elif due < lane.wakes_at:
            lane.wake(due)
