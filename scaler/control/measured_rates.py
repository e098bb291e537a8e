"""The rate of each application, from counts that sidecars report for their own stretches of time.

The rate to plan for is the mean over a window. A window that is long enough to be precise is slow
to follow a jump; so if the last moments alone show, significantly (by three standard deviations of
a Poisson count), that the rate is higher than the window's mean, their rate is used. A fall has to
fill the window.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Rates"]

_DEVIATIONS = 3.0  # many, as checks are frequent and instances started by chance would stay
_MOMENTS_S = (4.0, 2.0, 1.0, 0.5)
_KNOWN_S = 60.0  # an application without requests for this long is forgotten
_SILENT_S = 5.0  # without a report for this long, the load is unknown, not zero


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A number of arrivals at unknown times between start and end."""

    start_s: float
    end_s: float
    count: float

    def inside(self, start_s: float, end_s: float) -> float:
        """Return the share of its arrivals between two times, assuming a constant rate."""
        length_s = self.end_s - self.start_s
        if length_s <= 0:
            return self.count if start_s <= self.end_s <= end_s else 0.0
        common_s = min(end_s, self.end_s) - max(start_s, self.start_s)
        return self.count * max(0.0, common_s) / length_s


class Rates:
    """Arrival rates of one function's applications.

    Args:
        window_s: Length of the window that rates are averaged over.
    """

    def __init__(self, window_s: float = 10.0) -> None:
        self._window_s = window_s
        self._stretches: dict[str, deque[_Stretch]] = {}
        self._began_s = math.inf
        self._heard_s = -math.inf
        self._expected = False

    def expect(self) -> None:
        """Treat the rate as unknown until a sidecar reports, as there are instances already."""
        self._expected = True

    @property
    def least_rps(self) -> float:
        """The rate of one request in the window."""
        return 1 / self._window_s

    def note(self, counts: Mapping[str, float], period_s: float, now_s: float) -> None:
        """Record a sidecar's arrivals by application over the last ``period_s``."""
        self._began_s = min(self._began_s, now_s - period_s)
        self._heard_s = now_s
        for app, count in counts.items():
            stretches = self._stretches.setdefault(app, deque())
            stretches.append(_Stretch(now_s - period_s, now_s, count))
            while stretches[0].end_s <= now_s - self._window_s:
                stretches.popleft()
        gone_s = now_s - max(self._window_s, _KNOWN_S)
        for app in [a for a, s in self._stretches.items() if s[-1].end_s <= gone_s]:
            del self._stretches[app]

    def at(self, now_s: float, silent_s: float = _SILENT_S) -> dict[str, float]:
        """Return requests per second by application; NaN if no sidecar has reported for long."""
        if self._heard_s + max(silent_s, _SILENT_S) < now_s:
            apps = self._stretches or ("*" if self._expected else ())
            return dict.fromkeys(apps, math.nan)
        return {app: self._rate(stretches) for app, stretches in self._stretches.items()}

    def _rate(self, stretches: deque[_Stretch]) -> float:
        end_s = self._heard_s  # later requests have not been reported yet
        known_s = max(end_s - self._began_s, _MOMENTS_S[-1])  # a burst does not make a rate
        mean = self._mean(stretches, end_s, min(self._window_s, known_s))
        highest = mean
        for moment_s in _MOMENTS_S:
            latest = self._mean(stretches, end_s, min(moment_s, known_s))
            doubt = _DEVIATIONS * math.sqrt(latest / moment_s)
            if latest - doubt > highest:
                highest = latest
        return highest

    def _mean(self, stretches: deque[_Stretch], end_s: float, length_s: float) -> float:
        if length_s <= 0:
            return 0.0
        start_s, count = end_s - length_s, 0.0
        for stretch in reversed(stretches):  # the latest came last
            if stretch.end_s < start_s:
                break
            count += stretch.inside(start_s, end_s)
        return count / length_s
