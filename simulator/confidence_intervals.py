"""95 % confidence intervals of means and of ratios of sums, by Student's t.

A ratio of sums, such as cost per hour or the share of missed requests, has the interval of its
first-order expansion (Cochran, Sampling Techniques, 3rd ed., 6.3): that of the mean of
``a_i - r b_i``, divided by the mean of ``b``.
"""

from __future__ import annotations

import math
from statistics import fmean, stdev
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["UNKNOWN", "Estimate", "half_interval", "ratio"]

_STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)  # 95 %, two sides
_NORMAL = 1.96


class Estimate(NamedTuple):
    """An estimate and half the width of its interval, which is NaN for a single observation."""

    value: float
    half: float

    @property
    def low(self) -> float:
        """Lower bound of the interval, at least 0 as no estimate is negative; may be NaN."""
        return self.half if math.isnan(self.half) else max(0.0, self.value - self.half)

    @property
    def high(self) -> float:
        """Upper bound of the interval; may be NaN."""
        return self.value + self.half


UNKNOWN = Estimate(math.nan, math.nan)


def half_interval(values: Sequence[float]) -> float:
    """Return half the interval of the mean; NaN for one value, or if one is infinite."""
    freedom = len(values) - 1
    if freedom < 1 or math.inf in values:
        return math.nan
    few = freedom <= len(_STUDENT)
    # The first terms of the expansion in 1 / freedom, right to 0.002 from here on.
    factor = _STUDENT[freedom - 1] if few else _NORMAL + 2.37 / freedom + 2.82 / freedom**2
    return factor * stdev(values) / math.sqrt(len(values))


def ratio(above: Sequence[float], below: Sequence[float]) -> Estimate:
    """Return the ratio of the sums of paired observations; NaN if the second sum is zero."""
    total = math.fsum(below)
    if not total > 0:
        return UNKNOWN
    value = math.fsum(above) / total
    rest = [a - value * b for a, b in zip(above, below, strict=True)]
    return Estimate(value, half_interval(rest) / fmean(below))
