"""A histogram of times whose bins grow by a tenth each: small to send, precise at any scale.

Bin 0 holds everything below `FIRST_S`, the last one everything beyond some fifteen days; nothing
here knows what the times are of.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING

from carpool.validation import rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.validation.problems import Problems

__all__ = ["BINS", "FIRST_S", "Spread", "bin_of", "counts_rule", "middle_s", "quantile_s"]

FIRST_S = 0.001
BINS = 222
_RATIO = 1.1
_PER_LOG = 1 / math.log(_RATIO)

Spread = dict[int, int]  # counts by bin; empty bins are left out


def bin_of(time_s: float) -> int:
    """The bin that holds ``time_s``."""
    if time_s < FIRST_S:
        return 0
    return min(1 + int(math.log(time_s / FIRST_S) * _PER_LOG), BINS - 1)


def middle_s(number: int) -> float:
    """The time that stands for a bin: the geometric middle of its edges."""
    return FIRST_S / 2 if number == 0 else float(FIRST_S * _RATIO ** (number - 0.5))


def quantile_s(counts: Mapping[int, int], share: float) -> float | None:
    """The time below which that share of a spread is; None of an empty one."""
    bins = sorted(number for number, count in counts.items() if count > 0)
    sums = list(accumulate(counts[number] for number in bins))
    return next(
        (middle_s(n) for n, s in zip(bins, sums, strict=True) if s >= share * sums[-1]), None
    )


def counts_rule(value: object, path: str, problems: Problems) -> None:
    """The form of a spread in JSON: counts by the bin's number, which JSON has as a text."""
    before = len(problems)
    _COUNTS(value, path, problems)
    if len(problems) == before and isinstance(value, dict):
        _check_bins(value, path, problems)


def _check_bins(data: Mapping[str, int], path: str, problems: Problems) -> None:
    for number in data:
        whole = number.isascii() and number.isdecimal() and len(number) <= len(str(BINS))
        if not whole or int(number) >= BINS or number != str(int(number)):
            problems.add(f"{path}.{number[:20]}", number[:20], f"a bin from 0 to {BINS - 1}")


_COUNTS = rules.mapping(rules.number("a count of at least 1", lambda v: v >= 1, whole=True))
