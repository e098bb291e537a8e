"""Builds processes of two phases with given moments, the last step of fitting.

A MAP(2) is determined by four numbers: three moments of its gaps, and the factor by which their
autocorrelation falls from one lag to the next (Bodrog, Heindl, Horvath and Telek, 2008). Gaps that
vary more than those of a Poisson process are a mixture of two exponentials; with the factor as the
probability that the next gap is drawn from the same exponential, all four numbers are matched.
Written with other phases, the same process is often an MMPP(2), whose rates and stays are easier to
interpret. Gaps that vary less than those of a Poisson process are two exponential stages in a row.

Moments that cannot be matched are approximated as closely as possible, and reported. Nothing here
depends on samples.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from scaler.arrivals.markov import MarkovArrivals, mmpp2
from scaler.arrivals.processes import Poisson

__all__ = ["Fitted", "as_mmpp2", "base_correlation", "map2", "switching"]

_NEARLY_ONE = 1 - 1e-6
_NEAR = 1e-3
_ABOVE = 1 + 1e-6
_LEAST_SCV = 0.5  # of two phases


class Fitted(NamedTuple):
    """A process, and the requested properties that it lacks; empty if it has all of them."""

    process: Poisson | MarkovArrivals
    short: str = ""


class _Mixture(NamedTuple):
    """A mixture of two exponentials with rates in 1/s; the fast one has probability ``first``."""

    first: float
    fast: float
    slow: float


def map2(mean_s: float, scv: float, third: float, decay: float) -> Fitted:
    """Return a process whose gaps have these moments.

    Args:
        mean_s: Mean in s, above 0.
        scv: Squared coefficient of variation.
        third: Third moment over the cube of the mean.
        decay: Autocorrelation at a lag over that at the previous lag.
    """
    if abs(scv - 1) < _NEAR:
        return Fitted(Poisson(1 / mean_s))
    if scv < 1:
        return _stages(mean_s, scv)
    least = 1.5 * (1 + scv) ** 2
    mixture = _mixture(mean_s, scv, third if third > least * _ABOVE else least * (1 + _NEAR))
    share = mixture.first
    lowest = -min(share / (1 - share), (1 - share) / share)
    kept = min(max(decay, lowest), _NEARLY_ONE)
    short = []
    if third < least:
        short.append(f"a third moment of {third:.4g}, below {least:.4g}, the least with this SCV")
    if kept != decay:
        short.append(f"a decay of {decay:.4g}: it has {kept:.4g}")
    process = _switched(mixture, kept)
    return Fitted(as_mmpp2(process) or process, ", ".join(short))


def as_mmpp2(process: MarkovArrivals) -> MarkovArrivals | None:
    """Return the MMPP(2) that is equivalent to a process; None if there is none.

    Both have the same trace and determinant of D0, the same determinant of D1 and the same rate.
    """
    (a, b), (c, d) = process.silent
    product = a * d - b * c
    (e, f), (g, h) = process.arriving
    both = e * h - f * g  # product of the two rates
    leaving = (product - both) / process.mean_rate  # sum of the two switching rates
    total = -a - d - leaving
    root = total**2 - 4 * both
    if leaving <= 0 or both < 0 or root <= 0:
        return None
    low, high = (total - math.sqrt(root)) / 2, (total + math.sqrt(root)) / 2
    rising = (product - both - low * leaving) / (high - low)
    if low < 0 or not 0 < rising < leaving:
        return None
    return mmpp2((low, high), (rising, leaving - rising))


def switching(mean_rps: float, variance: float, skewness: float, relaxing: float) -> Fitted:
    """Return the MMPP(2) whose rate has these moments over time.

    Args:
        mean_rps: Mean rate, above 0.
        variance: Variance of the rate, in 1/s^2.
        skewness: Skewness of the rate.
        relaxing: Decay rate of the rate's autocovariance, in 1/s, above 0.
    """
    if variance <= (_NEAR * mean_rps) ** 2:
        return Fitted(Poisson(mean_rps))
    share = (1 - skewness / math.sqrt(4 + skewness**2)) / 2  # of time at the higher rate
    high_share = min(share, mean_rps**2 / (variance + mean_rps**2))  # or the lower is below 0
    spread = math.sqrt(variance)
    high = mean_rps + spread * math.sqrt((1 - high_share) / high_share)
    low = max(mean_rps - spread * math.sqrt(high_share / (1 - high_share)), 0.0)
    short = "" if high_share == share else "the skewness of its rate"
    process = mmpp2((low, high), (relaxing * high_share, relaxing * (1 - high_share)))
    return Fitted(process, short)


def base_correlation(scv: float) -> float:
    """Return the autocorrelation divided by ``decay ** lag``, for an SCV above 1."""
    return (scv - 1) / (2 * scv)


def _mixture(mean_s: float, scv: float, third: float) -> _Mixture:
    """Return the two exponentials with these moments (Whitt, 1982), for an SCV above 1."""
    second, cubed = (1 + scv) / 2, third / 6  # factorial moments in units of the mean
    total = (cubed - second) / (second - 1)
    product = (cubed - second**2) / (second - 1)
    root = math.sqrt(max(total**2 - 4 * product, 0.0))
    long = (total + root) / 2
    short = product / long
    return _Mixture((long - 1) / (long - short), 1 / (short * mean_s), 1 / (long * mean_s))


def _switched(mixture: _Mixture, decay: float) -> MarkovArrivals:
    share, fast, slow = mixture
    stay, other = decay + (1 - decay) * share, (1 - decay) * (1 - share)
    back, rest = (1 - decay) * share, decay + (1 - decay) * (1 - share)
    silent = ((-fast, 0.0), (0.0, -slow))
    arriving = ((fast * max(stay, 0.0), fast * other), (slow * back, slow * max(rest, 0.0)))
    return MarkovArrivals(silent, arriving)


def _stages(mean_s: float, scv: float) -> Fitted:
    """Return two stages with this SCV, whose gaps are uncorrelated."""
    kept = max(scv, _LEAST_SCV)
    spread = math.sqrt(max(2 * kept - 1, 0.0))
    first, second = 2 / (mean_s * (1 + spread)), 2 / (mean_s * (1 - spread))
    process = MarkovArrivals(((-first, first), (0.0, -second)), ((0.0, 0.0), (second, 0.0)))
    lost = f"an SCV of {scv:.4g}: it has {_LEAST_SCV:g}" if kept > scv else ""
    return Fitted(process, lost)
