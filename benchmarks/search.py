"""Find the highest rate a server sustains: geometric steps until bracketed, then bisection.

The search is pure: it calls ``sustained`` and knows neither servers nor clocks.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NARROW", "WIDE", "highest_rate"]

# Factors between probes until the rate is bracketed: with no idea where it is, and with one.
WIDE, NARROW = 1.6, 1.15
_LOWEST_RPS = 0.5
_HIGHEST_RPS = 200_000.0


def highest_rate(
    sustained: Callable[[float], bool],
    start_rps: float,
    *,
    step: float = WIDE,
    resolution: float = 0.05,
) -> float:
    """Return the highest rate found for which ``sustained`` is true, or 0 if there is none.

    Args:
        sustained: probes one rate.
        start_rps: first guess.
        step: factor between rates until one is sustained and one is not.
        resolution: relative distance at which the search between the two stops.
    """
    good, bad = 0.0, math.inf
    rate = start_rps
    while not (good and bad < math.inf):
        if sustained(rate):
            good, rate = rate, rate * step
        else:
            bad, rate = rate, rate / step
        if not _LOWEST_RPS <= rate <= _HIGHEST_RPS:
            return good
    while bad / good > 1 + resolution:
        rate = math.sqrt(good * bad)
        if sustained(rate):
            good = rate
        else:
            bad = rate
    return good
