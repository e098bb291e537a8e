"""How far a mean, or a ratio of two sums, may be off: intervals of 95 % by Student's t.

A ratio of sums, as cost over hours or missed requests over all, has the interval of its first-order
expansion (Cochran, Sampling Techniques, 3rd ed., 6.3): that of the mean of ``a_i - r b_i``, divided
by the mean of ``b``.
"""

from __future__ import annotations

import math
from statistics import fmean, stdev
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Estimate", "half_interval", "ratio"]

_STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)  # 95 %, two sides
_NORMAL = 1.96


class Estimate(NamedTuple):
    """A number and half its interval, which is NaN where one observation gives none."""

    value: float
    half: float

    @property
    def low(self) -> float:
        """The lower end, and not below 0: what is estimated never is; NaN likewise."""
        return self.half if math.isnan(self.half) else max(0.0, self.value - self.half)

    @property
    def high(self) -> float:
        """The upper end; NaN likewise."""
        return self.value + self.half


def half_interval(values: Sequence[float]) -> float:
    """Half the interval of their mean; NaN for one alone, or where one is infinite."""
    freedom = len(values) - 1
    if freedom < 1 or math.inf in values:
        return math.nan
    few = freedom <= len(_STUDENT)
    # The first terms of the expansion in 1 / freedom, right to 0.002 from here on.
    factor = _STUDENT[freedom - 1] if few else _NORMAL + 2.37 / freedom + 2.82 / freedom**2
    return factor * stdev(values) / math.sqrt(len(values))


def ratio(above: Sequence[float], below: Sequence[float]) -> Estimate:
    """The sum of the one over the sum of the other, observed in pairs; NaN over nothing."""
    total = math.fsum(below)
    if not total > 0:
        return Estimate(math.nan, math.nan)
    value = math.fsum(above) / total
    rest = [a - value * b for a, b in zip(above, below, strict=True)]
    return Estimate(value, half_interval(rest) / fmean(below))
