"""The hybrid histogram policy of Serverless in the Wild (ATC'20, section 4.2).

Idle times are counted in bins of a minute. If the histogram is representative, an instance comes
back before the head (5th percentile, rounded down) and is released after the tail (99th, rounded
up), with a margin of 10 % on both. If the counts of the bins hardly differ (CV below 2), it is not,
and the instance stays for the whole range. If at least half of the idle times are out of range, the
next one is forecast, with a margin of 15 %.

Deviations: the forecast is a first-order autoregression (`IdleSeries`), not the best of many ARIMA
models; and both windows count from the end of the last execution, so that the keep-alive after a
forecast f is 1.15 f, where the paper counts 2 * 0.15 f from the load at 0.85 f.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from carpool.validation import rules
from carpool.validation.problems import Problems
from scaler.prewarm.contract import Windows
from scaler.prewarm.idle_bins import Bins
from scaler.prewarm.idle_histogram import IdleHistogram, check_quantiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

__all__ = ["HybridHistogram", "IdleSeries"]

_SCHEMA = rules.record(
    {"histogram": rules.anything, "series": rules.anything},
    required=frozenset({"histogram", "series"}),
)

_LATEST = 64  # idle times from which the next is forecast
_SERIES = rules.each(rules.each(rules.number("a number of seconds", lambda _: True)))


class HybridHistogram:
    """Head and tail of the observed idle times (Serverless in the Wild, ATC'20)."""

    @dataclass(frozen=True, slots=True)
    class Params:
        """Parameters of `HybridHistogram`.

        Attributes:
            bin_s: width of a bin in seconds.
            range_s: longest idle time in the histogram, in seconds.
            head: quantile of idle times before which an instance is loaded.
            tail: quantile of idle times after which it is removed.
            margin: share by which the window is widened at either end.
            variation_min: least CV of the bins' counts for which the histogram is used.
            out_of_bounds_max: share of idle times beyond the range from which they are forecast.
            forecast_margin: assumed relative error of a forecast in either direction.
            window_s: seconds after which an idle time is forgotten; null: never.
        """

        bin_s: float = 60.0
        range_s: float = 14400.0
        head: float = 0.05
        tail: float = 0.99
        margin: float = 0.1
        variation_min: float = 2.0
        out_of_bounds_max: float = 0.5
        forecast_margin: float = 0.15
        window_s: float | None = None

        def __post_init__(self) -> None:
            """Validate the parameters.

            Raises:
                ConfigError: Some parameters are out of range.
            """
            problems = Problems()
            check_quantiles(problems, self.bin_s, self.range_s, self.head, self.tail)
            shares, seconds = ("margin", "forecast_margin", "out_of_bounds_max"), ("window_s",)
            problems.check(self, shares, lambda v: 0 <= v <= 1, "a share from 0 to 1")
            problems.check(self, ("variation_min",), lambda v: v >= 0, "at least 0")
            problems.check(self, seconds, lambda v: 0 < v < math.inf, "seconds above 0, or null")
            problems.raise_if_any()

    def __init__(self, params: Params) -> None:
        self._params = params
        bins = Bins.even(params.bin_s, params.range_s)
        self._histogram = IdleHistogram(bins, params.window_s)
        self._series = IdleSeries()

    def observe(self, idle_s: float, now_s: float) -> None:
        """Count the idle time, and keep it for forecasts."""
        self._histogram.add(idle_s, now_s)
        self._series.add(idle_s, now_s)

    def windows(self, now_s: float) -> Windows:
        """Return the windows from head to tail, by a forecast, or the whole range."""
        seen, params = self._histogram, self._params
        seen.forget(now_s)
        if seen.total and seen.out_of_bounds_share >= params.out_of_bounds_max:
            next_s = self._series.forecast()
            margin_s = params.forecast_margin * next_s
            return Windows(next_s - margin_s, next_s + margin_s)
        if seen.in_bounds == 0 or seen.variation < params.variation_min:
            return Windows(0.0, params.range_s)
        early, late = 1 - params.margin, 1 + params.margin
        return Windows(seen.head_s(params.head) * early, seen.tail_s(params.tail) * late)

    def to_dict(self) -> dict[str, Any]:
        """Return the histogram and the latest idle times."""
        return {"histogram": self._histogram.to_dict(), "series": self._series.to_dict()}

    def absorb(self, data: Mapping[str, Any]) -> None:
        """See `PrewarmPolicy.absorb`."""
        rules.checked(_SCHEMA, data)
        histogram = self._histogram.read(data["histogram"])
        series = IdleSeries.from_dict(data["series"])
        self._histogram.merge(histogram)
        self._series.merge(series)


class IdleSeries:
    """The latest idle times, each with the time at which it ended, to forecast the next one.

    The forecast is ARIMA(1,0,0), fitted by moments: the mean, plus the latest deviation times the
    lag-1 autocorrelation. A few idle times of many hours each do not support a higher order, and
    typical patterns are covered: a timer (no deviation), work days and weekends or two timers
    (deviations that alternate), a slow drift (deviations that stay), and none of these (the mean).
    Fitting by moments keeps the coefficient between -1 and 1, so the forecast cannot diverge.
    """

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
    pairs, problems = rules.checked(_SERIES, data, "series"), Problems()
    for index, pair in enumerate(pairs):
        if len(pair) != 2 or pair[1] < 0:  # noqa: PLR2004  a pair
            problems.add(f"series[{index}]", pair, "when it ended, and seconds of at least 0")
    problems.raise_if_any()
    return [(float(now_s), float(idle_s)) for now_s, idle_s in pairs]
