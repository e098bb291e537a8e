"""Sends the requests of an application. This code runs for every single request.

The batcher is stepped only when a request is due, a batch is full, or an instance is free:
otherwise a step changes nothing (in `sidecar.core.batcher` a batch closes only when an instance can
take it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sidecar.core.request import DEADLINE_SHARE, Request

if TYPE_CHECKING:
    from carpool.arrivals.processes import Times
    from scaler.scenarios.scenario import App
    from simulator.simulated_sidecar import SimulatedSidecar

__all__ = ["SendingApplication"]


class SendingApplication:
    """An application that sends its requests to a simulated sidecar.

    Args:
        sidecar: The simulated sidecar.
        app: The application.
    """

    __slots__ = ("_admit", "_hold", "_load", "_name", "_sidecar", "_skipped", "_slo_s")

    def __init__(self, sidecar: SimulatedSidecar, app: App) -> None:
        self._sidecar = sidecar
        self._admit = sidecar.batcher.admit
        self._name = app.name
        self._hold = sidecar.cold_start.arrived
        self._slo_s = app.slo_s
        self._load = sidecar.load
        self._skipped: Times = np.empty(0)

    def skips(self, times: Times) -> None:
        """Count requests at these times when they come, without simulating them."""
        self._skipped = np.concatenate((self._skipped, times))

    def count_skipped(self, now: float) -> None:
        """Count the requests until `now` that are not simulated."""
        if not len(self._skipped):
            return
        came = int(np.searchsorted(self._skipped, now, side="right"))
        if came:
            self._skipped = self._skipped[came:]
            self._load.add(self._name, came)

    def arrive(self, now: float) -> None:
        """Send one request."""
        sidecar = self._sidecar
        self._load.arrived(self._name, now)
        now -= sidecar.skipped_s
        sidecar.requests = number = sidecar.requests + 1
        slo_s = self._slo_s
        request = Request(number, None, now, deadline=now + slo_s * DEADLINE_SHARE, app=self._name)
        request.counted_as, request.due = self._name, now + slo_s
        if not sidecar.least:
            self._hold(request)
        if self._admit(request, now) is not None:
            sidecar.outcomes.refused += 1
            sidecar.outcomes.miss(self._name)
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
