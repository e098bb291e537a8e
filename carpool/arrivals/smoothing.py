"""Averages measured rates over time, so that a plan does not follow the noise of a window.

The weight of past measurements falls exponentially, and accounts for how long they lasted: a new
application has its measured rate, and the noise of its first measurements soon counts for little.
An average that is close to the measured rate is replaced by it, so plans settle at a constant load.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from carpool.scaling import Application, FunctionLoad

__all__ = ["SmoothRates"]

_ALIKE = 0.01
_SILENT = 8.0  # time spans without a request after which the past is forgotten


class _Averaged(NamedTuple):
    """Averaged rate of an application, and when its measurement began."""

    rate_rps: float
    since_s: float


class SmoothRates:
    """Averaged rates of functions' applications, kept from snapshot to snapshot.

    Args:
        over_s: Time constant in seconds after which the past counts for a third; 0 disables
            averaging.
    """

    def __init__(self, over_s: float) -> None:
        self._over_s = over_s
        self._seen: dict[str, tuple[float, dict[str, _Averaged]]] = {}
        self._heard_s: dict[tuple[str, str], float] = {}

    def smoothed(self, load: FunctionLoad, now_s: float) -> tuple[Application, ...]:
        """Return a function's applications with averaged rates; new ones keep the measured rate."""
        then_s, before = self._seen.get(load.name, (now_s, {}))
        known: dict[str, _Averaged] = {}
        for app in load.apps:
            measured = app.rate_rps
            last = before.get(app.name, _Averaged(measured, now_s))
            rate = measured + self._share(last, then_s, now_s) * (last.rate_rps - measured)
            if measured:
                self._heard_s[load.name, app.name] = now_s
            heard_s = self._heard_s.get((load.name, app.name), -math.inf)
            silent = now_s - heard_s >= _SILENT * self._over_s
            rate = measured if silent or abs(rate - measured) <= _ALIKE * measured else rate
            known[app.name] = _Averaged(rate, last.since_s)
        self._seen[load.name] = (now_s, known)
        return tuple(replace(app, rate_rps=known[app.name].rate_rps) for app in load.apps)

    def _share(self, last: _Averaged, then_s: float, now_s: float) -> float:
        """Return the weight of measurements until ``then_s`` among all until ``now_s``."""
        if not self._over_s or now_s <= last.since_s:
            return 0.0
        aged, first = (math.exp((t - now_s) / self._over_s) for t in (then_s, last.since_s))
        if first == 1:  # so long that all measurements have the same weight
            return (then_s - last.since_s) / (now_s - last.since_s)
        return (aged - first) / (1 - first)
