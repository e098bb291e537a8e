"""The long-short term histogram of INFless (ASPLOS'22, section 3.5).

Two histograms of idle times, of the last day and of the last hour. The windows are weighted means
of both: ``gamma L + (1 - gamma) S`` for the head and for the tail, gamma = 0.5.

It takes the bins, the percentiles and the margins from the hybrid histogram policy (ATC'20). For
cases that INFless leaves open: if the short histogram is empty, the long one decides alone; if both
are, an instance stays for the whole range. The 99th percentile of three idle times is no more than
their largest: with few requests per hour the short histogram releases instances too early, and
``short_least`` disregards it then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from carpool.validation import rules
from carpool.validation.problems import Problems
from scaler.prewarm.contract import Windows
from scaler.prewarm.idle_bins import Bins
from scaler.prewarm.idle_histogram import IdleHistogram, check_quantiles

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LongShortHistogram"]

_SCHEMA = rules.record(
    {"long": rules.anything, "short": rules.anything}, required=frozenset({"long", "short"})
)


class LongShortHistogram:
    """Weighted head and tail of the last day's and the last hour's idle times (INFless)."""

    @dataclass(frozen=True, slots=True)
    class Params:
        """Parameters of `LongShortHistogram`.

        Attributes:
            gamma: weight of the long histogram; the short one has the rest.
            long_s: seconds that the long histogram covers.
            short_s: seconds that the short histogram covers.
            short_least: least number of idle times for the short one to count; 1 as published.
            bin_s: width of a bin in seconds.
            range_s: longest idle time in the histograms, in seconds.
            head: quantile of idle times before which an instance is loaded.
            tail: quantile of idle times after which it is removed.
            margin: share by which the window is widened at either end.
        """

        gamma: float = 0.5
        long_s: float = 86400.0
        short_s: float = 3600.0
        short_least: int = 1
        bin_s: float = 60.0
        range_s: float = 14400.0
        head: float = 0.05
        tail: float = 0.99
        margin: float = 0.1

        def __post_init__(self) -> None:
            """Validate the parameters.

            Raises:
                ConfigError: Some parameters are out of range.
            """
            problems = Problems()
            check_quantiles(problems, self.bin_s, self.range_s, self.head, self.tail)
            if not 0 < self.short_s <= self.long_s < math.inf:
                problems.add("short_s", self.short_s, f"above 0, at most long_s ({self.long_s:g})")
            if self.short_least < 1:
                problems.add("short_least", self.short_least, "at least 1")
            shares = ("gamma", "margin")
            problems.check(self, shares, lambda v: 0 <= v <= 1, "a share from 0 to 1")
            problems.raise_if_any()

    def __init__(self, params: Params) -> None:
        self._params = params
        bins = Bins.even(params.bin_s, params.range_s)
        self._long = IdleHistogram(bins, params.long_s)
        self._short = IdleHistogram(bins, params.short_s)

    def observe(self, idle_s: float, now_s: float) -> None:
        """Count the idle time in both histograms."""
        self._long.add(idle_s, now_s)
        self._short.add(idle_s, now_s)

    def windows(self, now_s: float) -> Windows:
        """Return the weighted mean of the windows of both histograms."""
        self._long.forget(now_s)
        self._short.forget(now_s)
        params = self._params
        if self._long.in_bounds == 0:
            return Windows(0.0, params.range_s)
        short, gamma = self._short, params.gamma
        if short.in_bounds < params.short_least:
            short = self._long
        head_s = gamma * self._long.head_s(params.head) + (1 - gamma) * short.head_s(params.head)
        tail_s = gamma * self._long.tail_s(params.tail) + (1 - gamma) * short.tail_s(params.tail)
        return Windows(head_s * (1 - params.margin), tail_s * (1 + params.margin))

    def to_dict(self) -> dict[str, Any]:
        """Return both histograms."""
        return {"long": self._long.to_dict(), "short": self._short.to_dict()}

    def absorb(self, data: Mapping[str, Any]) -> None:
        """See `PrewarmPolicy.absorb`."""
        rules.checked(_SCHEMA, data)
        long, short = self._long.read(data["long"]), self._short.read(data["short"])
        self._long.merge(long)
        self._short.merge(short)
