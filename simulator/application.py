"""An application that sends requests. This is the code that runs for every single request.

The batcher is stepped only when a request is due, a batch is full, or an instance is free:
otherwise a step changes nothing (in `sidecar.core.batcher` a batch closes only when an instance can
take it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sidecar.core.request import RETURN_SHARE, Request

if TYPE_CHECKING:
    from scaler.arrivals.processes import Times
    from scaler.scenarios.scenario import App
    from sidecar.core.surge import SurgeDetector
    from simulator.simulated_sidecar import SimulatedSidecar

__all__ = ["SendingApplication"]

_DEADLINE_SHARE = 1 - RETURN_SHARE


class SendingApplication:
    """An application that sends its requests to a simulated sidecar.

    Args:
        sidecar: The simulated sidecar.
        app: The application.
        surge: Notified of each request.

    Attributes:
        app: The application.
        count: Number of requests since the last report.
    """

    __slots__ = (
        "_admit",
        "_hold",
        "_name",
        "_sidecar",
        "_skipped",
        "_slo_s",
        "_surge",
        "app",
        "count",
    )

    def __init__(self, sidecar: SimulatedSidecar, app: App, surge: SurgeDetector) -> None:
        self.app = app
        self._sidecar = sidecar
        self._admit = sidecar.batcher.admit
        self._name = app.name
        self._hold = sidecar.cold_start.arrived
        self._slo_s = app.slo_s
        self.count = 0
        self._surge = surge
        self._skipped: Times = np.empty(0)

    def skips(self, times: Times) -> None:
        """Count requests at these times without simulating them."""
        self._skipped = times

    def take(self, now: float) -> int:
        """Return the number of requests since the last call."""
        if len(self._skipped):
            came = int(np.searchsorted(self._skipped, now, side="right"))
            self._skipped = self._skipped[came:]
            self.count += came
            self._surge.add(came)
        count, self.count = self.count, 0
        return count

    def arrive(self, now: float) -> None:
        """Send one request."""
        sidecar = self._sidecar
        self.count += 1
        if self._surge.arrived(now):
            sidecar.urgent(now)
        if sidecar.resting:
            sidecar.ended_idle(now)
        now -= sidecar.skipped_s
        sidecar.requests = number = sidecar.requests + 1
        slo_s = self._slo_s
        request = Request(number, None, now, deadline=now + slo_s * _DEADLINE_SHARE, app=self._name)
        request.due = now + slo_s
        if not sidecar.least:
            self._hold(request)
        if self._admit(request, now) is not None:
            sidecar.served.refused += 1
            sidecar.served.miss(self._name)
            return
        sidecar.waiting += 1
        if not sidecar.free:
            due = request.deadline
            leaves = sidecar.may_leave_queued(now)
        else:
            due = min(request.depart, request.deadline)
            leaves = due <= now or sidecar.waiting >= sidecar.least
        if leaves:
            sidecar.step(now)
        elif due < sidecar.wakes_at:
            sidecar.wake(due)
