"""A histogram of times whose bins grow by a tenth each: small to send, precise at any scale.

Bin 0 holds everything below `FIRST_S`, the last one everything above about fifteen days. The
meaning of the times is not known here.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BINS", "FIRST_S", "Spread", "bin_of", "middle_s", "quantile_s"]

FIRST_S = 0.001
BINS = 222
_RATIO = 1.1
_PER_LOG = 1 / math.log(_RATIO)

Spread = dict[int, int]  # counts by bin; empty bins are left out


def bin_of(time_s: float) -> int:
    """Return the bin that contains ``time_s``."""
    if time_s < FIRST_S:
        return 0
    return min(1 + int(math.log(time_s / FIRST_S) * _PER_LOG), BINS - 1)


def middle_s(number: int) -> float:
    """Return the time that represents a bin: the geometric mean of its edges."""
    return FIRST_S / 2 if number == 0 else float(FIRST_S * _RATIO ** (number - 0.5))


def quantile_s(counts: Mapping[int, int], share: float) -> float | None:
    """Return the time below which ``share`` of the counts lie; None if there are none."""
    bins = sorted(number for number, count in counts.items() if count > 0)
    sums = list(accumulate(counts[number] for number in bins))
    return next(
        (middle_s(n) for n, s in zip(bins, sums, strict=True) if s >= share * sums[-1]), None
    )
