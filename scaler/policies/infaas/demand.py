"""The rates to plan for: higher ones immediately, lower ones only after a while.

Measured rates are counts over short windows, and fluctuate. So they are averaged, unless one is so
far above its average that chance does not explain it. After such a jump little is known about the
new rate, and instances that start too late make all requests late, so the plan is for the highest
rate that would still explain the count. Scaling down follows the highest rate that was planned for
recently.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from carpool.scaling import FunctionLoad

__all__ = ["AppRates", "Rates"]

_UNLIKELY = 3.0  # standard deviations of a count
_DOUBTED = 2.0  # the same, by which a rate that has just jumped may exceed the count
_COUNTED_S = 0.5  # shortest period over which rates are counted
_STEP = 1.02  # rates are rounded up to a power of this, so that small changes change nothing
_SILENT = 0.1  # requests that an average still expects after the last one
_NEVER_RPS = 1e-9


@dataclass(frozen=True, slots=True)
class AppRates:
    """Rates of one function's applications, in their order.

    Attributes:
        now: Rates to serve from now on.
        peak: Highest recent rates.
    """

    now: tuple[float, ...]
    peak: tuple[float, ...]


@dataclass(slots=True)
class _Memory:
    """Past rates of one application."""

    mean: float
    at_s: float
    seen: deque[tuple[float, float]] = field(default_factory=deque)


class Rates:
    """Keeps the past rates of applications.

    Args:
        smoothing_s: Seconds after which earlier rates still weigh a third; 0 disables smoothing.
        calm_s: Seconds for which less must have been wanted before the peak falls.
    """

    def __init__(self, smoothing_s: float, calm_s: float) -> None:
        self._smoothing_s = smoothing_s
        self._calm_s = calm_s
        self._known: dict[tuple[str, str], _Memory] = {}

    def of(self, load: FunctionLoad, now_s: float) -> AppRates:
        """Record the current rates, and return the rates to plan for."""
        both = [self._seen(load.name, app.name, app.rate_rps, now_s) for app in load.apps]
        return AppRates(tuple(now for now, _ in both), tuple(peak for _, peak in both))

    def _seen(self, function: str, app: str, rate_rps: float, now_s: float) -> tuple[float, float]:
        key = (function, app)
        memory = self._known.get(key)
        if memory is None:
            memory = self._known[key] = _Memory(rate_rps, now_s)
        passed_s = max(now_s - memory.at_s, 0.0)
        aged = math.exp(-passed_s / self._smoothing_s) if self._smoothing_s else 0.0
        expected = memory.mean * passed_s
        memory.mean = rate_rps + aged * (memory.mean - rate_rps)
        if rate_rps * passed_s > expected + _UNLIKELY * math.sqrt(expected) + 1:
            memory.mean = rate_rps + _DOUBTED * math.sqrt(rate_rps / max(passed_s, _COUNTED_S))
        if not rate_rps and memory.mean * self._smoothing_s < _SILENT:
            memory.mean = 0.0
        memory.at_s = now_s
        wanted = _rounded(memory.mean)
        while memory.seen and memory.seen[-1][1] <= wanted:
            memory.seen.pop()
        memory.seen.append((now_s, wanted))
        while memory.seen[0][0] < now_s - self._calm_s:
            memory.seen.popleft()
        return wanted, memory.seen[0][1]


def _rounded(rate_rps: float) -> float:
    """Return the rate rounded up to a power of the step; 0 if it is negligible."""
    if rate_rps < _NEVER_RPS:
        return 0.0
    return float(_STEP ** math.ceil(math.log(rate_rps) / math.log(_STEP) - 1e-9))
