"""A part of a core, as the kernel hands it out: so much time in each period, and none beyond.

Theory of operation
-------------------
A group that is held to ``cpu`` cores may use ``cpu`` times the period of core seconds in each (CFS
bandwidth control: Turner, Rao and Rao, Linux Symposium 2010). While it may, it runs at full speed,
on as many whole cores as it takes; when it has used up its share it stands still until the next
period. What it does not use is lost. So a batch that comes after a pause is done much sooner than
one of an instance that is busy, though both take the same work, and only under full load does a
batch take its work divided by ``cpu``.

The kernel looks at its clock's ticks (4 ms where it was built with ``CONFIG_HZ=250``) whether a
group has used up its share. So it may run on until the next tick; what that is too much, it has the
less in the periods after.

Latency models say how long batches take under full load. That times ``cpu`` is their work.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Budget", "Quota"]

_ROUNDING_S = 1e-9


@dataclass(frozen=True, slots=True)
class Quota:
    """The kernel's rule.

    Attributes:
        period_s: From one share to the next.
        tick_s: From one look at what was used to the next; 0: it looks all the time.
    """

    period_s: float = 0.01
    tick_s: float = 0.004


class Budget:
    """What one instance may still use.

    Args:
        quota: The rule.
        cpu: Cores that it is held to.
        offset_s: When its first period begins: each instance has periods and ticks of its own.
    """

    __slots__ = ("_left", "_offset_s", "_period", "_quota", "_share", "_speed")

    def __init__(self, quota: Quota, cpu: float, offset_s: float = 0.0) -> None:
        self._quota = quota
        self._speed = math.ceil(cpu)
        self._share = self._left = cpu * quota.period_s
        self._offset_s = offset_s
        self._period = -(2**62)

    def end(self, start_s: float, work_s: float) -> float:
        """When work of so many core seconds is done that begins now; nothing else runs meanwhile.

        Args:
            start_s: Not before the end of what ran before.
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
        """Hand out the shares of the periods that have begun; when the next one does."""
        period_s = self._quota.period_s
        period = math.floor((at_s - self._offset_s + _ROUNDING_S) / period_s)
        if period > self._period:
            owed = min(self._left, 0.0)
            self._left = min(self._share, owed + self._share * (period - self._period))
            self._period = period
        return self._offset_s + (period + 1) * period_s

    def _stops(self, used_up_s: float) -> float:
        """When the kernel notices."""
        tick_s = self._quota.tick_s
        if not tick_s:
            return used_up_s
        ticks = math.ceil((used_up_s - self._offset_s - _ROUNDING_S) / tick_s)
        return max(used_up_s, self._offset_s + ticks * tick_s)
