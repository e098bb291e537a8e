"""Measured rates, averaged over some time, so that a plan does not follow the noise of a window.

The weight of what was before falls exponentially. A rate that is as good as the measured one is the
measured one, so that a constant load comes to rest.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from carpool.scaling import Application, FunctionLoad

__all__ = ["SmoothRates"]

_ALIKE = 0.01
_SILENT = 8.0  # spans without a request after which nothing is left of the past


class SmoothRates:
    """The rates of functions' applications, remembered from snapshot to snapshot.

    Args:
        over_s: After how many seconds what was before counts for a third; 0: not at all.
    """

    def __init__(self, over_s: float) -> None:
        self._over_s = over_s
        self._seen: dict[str, tuple[float, dict[str, float]]] = {}
        self._heard_s: dict[tuple[str, str], float] = {}

    def smoothed(self, load: FunctionLoad, now_s: float) -> tuple[Application, ...]:
        """The applications of a function with averaged rates; what is new is as measured."""
        then_s, before = self._seen.get(load.name, (now_s, {}))
        aged = math.exp(-max(now_s - then_s, 0.0) / self._over_s) if self._over_s else 0.0
        apps = []
        for app in load.apps:
            measured = app.rate_rps
            rate = measured + aged * (before.get(app.name, measured) - measured)
            if measured:
                self._heard_s[load.name, app.name] = now_s
            heard_s = self._heard_s.get((load.name, app.name), -math.inf)
            silent = now_s - heard_s >= _SILENT * self._over_s
            rate = measured if silent or abs(rate - measured) <= _ALIKE * measured else rate
            apps.append(replace(app, rate_rps=rate))
        self._seen[load.name] = (now_s, {app.name: app.rate_rps for app in apps})
        return tuple(apps)
