"""A CPU quota as the kernel enforces it: a fixed amount of CPU time in each period.

Theory of operation
-------------------
A group limited to ``cpu`` cores may use ``cpu`` times the period of core seconds in each
period (CFS bandwidth control: Turner, Rao and Rao, Linux Symposium 2010). Until then it runs at
full speed on as many whole cores as it needs; once the quota is used up it is stopped until the
next period. Unused quota is lost. So a batch that arrives after a pause finishes much sooner than
one on a busy instance although both need the same work, and only under full load does a batch take
its work divided by ``cpu``.

The kernel checks at its clock ticks (every 4 ms with ``CONFIG_HZ=250``) whether a group has used up
its quota. A group may therefore run on until the next tick; the excess is deducted from the
following periods.

Latency models state how long batches take under full load. That time multiplied by ``cpu`` is their
work.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Budget", "Quota"]

_ROUNDING_S = 1e-9


@dataclass(frozen=True, slots=True)
class Quota:
    """Parameters of the kernel's scheduler.

    Attributes:
        period_s: Length of a period, in seconds.
        tick_s: Time between checks of the used quota; 0 for continuous checking.
    """

    period_s: float = 0.01
    tick_s: float = 0.004


class Budget:
    """Remaining CPU quota of one instance.

    Args:
        quota: Parameters of the scheduler.
        cpu: CPU limit in cores.
        offset_s: Start of the first period; each instance has its own periods and ticks.
    """

    __slots__ = ("_left", "_offset_s", "_period", "_quota", "_share", "_speed")

    def __init__(self, quota: Quota, cpu: float, offset_s: float = 0.0) -> None:
        self._quota = quota
        self._speed = math.ceil(cpu)
        self._share = self._left = cpu * quota.period_s
        self._offset_s = offset_s
        self._period = -(2**62)

    def end(self, start_s: float, work_s: float) -> float:
        """Return when work that begins now is done, if nothing else runs meanwhile.

        Args:
            start_s: Not before the end of the previous work.
            work_s: Core seconds.
        """
        at_s = start_s
        while True:
            next_s = self._renew(at_s)
            if self._left <= _ROUNDING_S:
                at_s = next_s
                continue
            runs_s = min(self._stops(at_s + self._left / self._speed), next_s) - at_s
            if work_s <= runs_s * self._speed + _ROUNDING_S:
                self._left -= work_s
                return at_s + work_s / self._speed
            work_s -= runs_s * self._speed
            self._left -= runs_s * self._speed
            at_s += runs_s

    def _renew(self, at_s: float) -> float:
        """Add the quota of the periods that have begun; return when the next one begins."""
        period_s = self._quota.period_s
        period = math.floor((at_s - self._offset_s + _ROUNDING_S) / period_s)
        if period > self._period:
            owed = min(self._left, 0.0)
            self._left = min(self._share, owed + self._share * (period - self._period))
            self._period = period
        return self._offset_s + (period + 1) * period_s

    def _stops(self, used_up_s: float) -> float:
        """Return when the kernel notices that the quota is used up."""
        tick_s = self._quota.tick_s
        if not tick_s:
            return used_up_s
        ticks = math.ceil((used_up_s - self._offset_s - _ROUNDING_S) / tick_s)
        return max(used_up_s, self._offset_s + ticks * tick_s)
