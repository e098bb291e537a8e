"""The highest rate a server sustains: geometric steps until bracketed, then bisection.

Pure: it asks ``sustained`` and knows neither servers nor clocks.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["highest_rate"]

_STEP = 1.6
_LOWEST_RPS = 0.5
_HIGHEST_RPS = 200_000.0


def highest_rate(
    sustained: Callable[[float], bool], start_rps: float, *, resolution: float = 0.05
) -> float:
    """The highest rate found for which ``sustained`` is true; 0 if there is none.

    Args:
        sustained: probes one rate.
        start_rps: first guess.
        resolution: how close, as a share, the rates that did and did not hold must come.
    """
    good, bad = 0.0, math.inf
    rate = start_rps
    while not (good and bad < math.inf):
        if sustained(rate):
            good, rate = rate, rate * _STEP
        else:
            bad, rate = rate, rate / _STEP
        if not _LOWEST_RPS <= rate <= _HIGHEST_RPS:
            return good
    while bad / good > 1 + resolution:
        rate = math.sqrt(good * bad)
        if sustained(rate):
            good = rate
        else:
            bad = rate
    return good
