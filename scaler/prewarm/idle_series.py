"""The latest idle times in order, and a forecast of the next one, for those beyond a histogram.

The forecast is a first-order autoregression, ARIMA(1,0,0), fitted by moments: the mean, plus the
latest deviation times the lag-1 autocorrelation. A few idle times of many hours each do not support
a higher order, and typical patterns are covered: a timer (no deviation), work days and weekends or
two timers (deviations that alternate), a slow drift (deviations that stay), and none of these (the
mean). Fitting by moments keeps the coefficient between -1 and 1, so the forecast cannot diverge.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from carpool.validation import rules
from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

__all__ = ["IdleSeries"]

_LATEST = 64
_SCHEMA = rules.each(rules.each(rules.number("a number of seconds", lambda _: True)))


class IdleSeries:
    """The latest idle times, each with the time at which it ended."""

    def __init__(self) -> None:
        self._ended: list[tuple[float, float]] = []

    def add(self, idle_s: float, now_s: float) -> None:
        """Add an idle time that ended at ``now_s``."""
        self._keep([*self._ended, (now_s, idle_s)])

    def forecast(self) -> float:
        """Return the forecast idle time in seconds, within the range of the latest ones.

        At least one idle time is required.
        """
        idle = [idle_s for _, idle_s in self._ended]
        mean = sum(idle) / len(idle)
        deviations = [idle_s - mean for idle_s in idle]
        spread = sum(deviation**2 for deviation in deviations)
        together = sum(one * next_ for one, next_ in itertools.pairwise(deviations))
        kept = together / spread if spread > 0 else 0.0
        return min(max(mean + kept * deviations[-1], min(idle)), max(idle))

    def to_dict(self) -> list[list[float]]:
        """Return pairs of the end and the length of each idle time."""
        return [list(pair) for pair in self._ended]

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """Return a series from the result of `to_dict`.

        Raises:
            ConfigError: The data is malformed.
        """
        series = cls()
        series._keep(_pairs(data))
        return series

    def merge(self, other: IdleSeries) -> None:
        """Merge another series into this one, keeping the latest of both."""
        self._keep([*self._ended, *other._ended])

    def _keep(self, ended: Sequence[tuple[float, float]]) -> None:
        self._ended = sorted(ended)[-_LATEST:]


def _pairs(data: object) -> Sequence[tuple[float, float]]:
    problems = Problems()
    _SCHEMA(data, "series", problems)
    problems.raise_if_any()
    assert isinstance(data, list)  # noqa: S101  the schema has checked it; this tells mypy
    for index, pair in enumerate(data):
        if len(pair) != 2 or pair[1] < 0:  # noqa: PLR2004  a pair
            problems.add(f"series[{index}]", pair, "when it ended, and seconds of at least 0")
    problems.raise_if_any()
    return [(float(now_s), float(idle_s)) for now_s, idle_s in data]
