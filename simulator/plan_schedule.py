"""When a live scaler looks: in its turn, and out of it when a front says that a load has jumped.

The rule by which fronts notice a jump is theirs (`sidecar.core.surge`); that a jump is followed for
a while, look by look, is the scaler's.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING

import numpy as np

from scaler.control.sync_pace import FOLLOWED_S, SOON_S
from sidecar.core.surge import Surge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler.arrivals.processes import Times

__all__ = ["PlanSchedule"]


class PlanSchedule:
    """Ends intervals early.

    Args:
        rates_rps: Of each function at the start; each has one front.
        interval_s: From look to look while nothing jumps.
    """

    def __init__(self, rates_rps: Sequence[float], interval_s: float) -> None:
        self._surges = [Surge(0.0, rate_rps) for rate_rps in rates_rps]
        self._interval_s = interval_s
        self._surged_s = -math.inf

    def step_s(self, now: float) -> float:
        """How long it is to the next look in its turn."""
        followed = now < self._surged_s + FOLLOWED_S
        return min(SOON_S, self._interval_s) if followed else self._interval_s

    def end(self, end: float, arrivals: Sequence[Sequence[Times]]) -> float:
        """When the next look is: at the first jump, or at ``end``.

        Args:
            end: Of the interval.
            arrivals: In the interval, by function and application.
        """
        merged = [np.sort(np.concatenate(own)).tolist() if own else [] for own in arrivals]
        for surge, times in zip(self._surges, merged, strict=True):
            trial = copy.copy(surge)
            end = next((at for at in times if at < end and trial.arrived(at)), end)
        for surge, times in zip(self._surges, merged, strict=True):
            for at in times:
                if at <= end:
                    surge.arrived(at)
            if surge.told(end):
                self._surged_s = end
        return end
