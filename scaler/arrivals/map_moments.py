"""Processes of two phases that have given moments: what fitting ends with.

A MAP(2) is known by four numbers: three moments of its gaps, and the factor by which their
autocorrelation falls from one lag to the next (Bodrog, Heindl, Horvath and Telek, 2008). Where gaps
vary more than a Poisson process's, they are a mixture of two exponentials; with the factor as the
chance that the next gap is drawn from the same of the two, all four numbers are met. Written with
other phases, the same process is often an MMPP(2), whose rates and stays a reader can picture.
Gaps that vary less than a Poisson process's are two exponential stages one after the other.

What cannot be met is met as nearly as can be, and said. Nothing here knows samples.
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
    """A process, and what it does not have of what was asked for; empty: it has all of it."""

    process: Poisson | MarkovArrivals
    short: str = ""


class _Mixture(NamedTuple):
    """With the chance ``first`` an exponential of one rate, else of the other; in 1/s."""

    first: float
    fast: float
    slow: float


def map2(mean_s: float, scv: float, third: float, decay: float) -> Fitted:
    """A process with these gaps.

    Args:
        mean_s: Mean in s, above 0.
        scv: Squared coefficient of variation.
        third: Third moment over the cube of the mean.
        decay: Autocorrelation at a lag over that at the lag before.
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
    found = _switched(mixture, kept)
    return Fitted(as_mmpp2(found) or found, ", ".join(short))


def as_mmpp2(process: MarkovArrivals) -> MarkovArrivals | None:
    """The MMPP(2) that is the same process; None if there is none.

    It has the same trace and determinant of D0, the same determinant of D1 and the same rate.
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
    """The MMPP(2) whose rate has these moments over time.

    Args:
        mean_rps: Mean rate, above 0.
        variance: Of the rate, in 1/s^2.
        skewness: Of the rate.
        relaxing: How fast the rate's autocovariance falls, in 1/s, above 0.
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
    """What ``decay ** lag`` is multiplied with to be the autocorrelation, for an SCV above 1."""
    return (scv - 1) / (2 * scv)


def _mixture(mean_s: float, scv: float, third: float) -> _Mixture:
    """The two exponentials with these moments (Whitt, 1982), for an SCV above 1."""
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
    """Two stages with this SCV; of the order of gaps nothing is kept."""
    kept = max(scv, _LEAST_SCV)
    spread = math.sqrt(max(2 * kept - 1, 0.0))
    first, second = 2 / (mean_s * (1 + spread)), 2 / (mean_s * (1 - spread))
    process = MarkovArrivals(((-first, first), (0.0, -second)), ((0.0, 0.0), (second, 0.0)))
    lost = f"an SCV of {scv:.4g}: it has {_LEAST_SCV:g}" if kept > scv else ""
    return Fitted(process, lost)
