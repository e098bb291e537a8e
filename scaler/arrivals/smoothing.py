"""Measured rates, averaged over some time, so that a plan does not follow the noise of a window.

The weight of what was before falls exponentially, and is that of the time in which it was measured:
what is new is as measured, and what its first moments happened to show counts for little soon. A
rate that is as good as the measured one is the measured one, so that a constant load comes to rest.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from carpool.scaling import Application, FunctionLoad

__all__ = ["SmoothRates"]

_ALIKE = 0.01
_SILENT = 8.0  # spans without a request after which nothing is left of the past


class _Averaged(NamedTuple):
    """What is known of an application: its rate, and since when it has been measured."""

    rate_rps: float
    since_s: float


class SmoothRates:
    """The rates of functions' applications, remembered from snapshot to snapshot.

    Args:
        over_s: After how many seconds what was before counts for a third; 0: not at all.
    """

    def __init__(self, over_s: float) -> None:
        self._over_s = over_s
        self._seen: dict[str, tuple[float, dict[str, _Averaged]]] = {}
        self._heard_s: dict[tuple[str, str], float] = {}

    def smoothed(self, load: FunctionLoad, now_s: float) -> tuple[Application, ...]:
        """The applications of a function with averaged rates; what is new is as measured."""
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
        """The weight of what was measured until ``then_s``, of all that was until ``now_s``."""
        if not self._over_s or now_s <= last.since_s:
            return 0.0
        aged, first = (math.exp((t - now_s) / self._over_s) for t in (then_s, last.since_s))
        if first == 1:  # so long that nothing fades: all that was measured counts the same
            return (then_s - last.since_s) / (now_s - last.since_s)
        return (aged - first) / (1 - first)
