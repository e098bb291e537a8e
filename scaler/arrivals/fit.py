"""Fits an arrival process to gaps, and measures the goodness of fit.

The result is the simplest process that the gaps do not contradict: Poisson, or else the MAP(2) with
the mean, the squared coefficient of variation (SCV) and the third moment of the gaps, whose
autocorrelation decays as theirs does over all recorded lags (an MMPP(2) if one exists). A single
lag says little about how long phases last: phases of a hundred and of a thousand requests differ
only in a factor per lag between 0.99 and 1.

The goodness of fit is the Kolmogorov-Smirnov distance between the gaps' histogram and the process's
distribution, compared with the distance that one in twenty samples of the process exceeds.
Correlated gaps count for less: if the process's correlations add up to r, one in 1 + 2r.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from scaler.arrivals.gap_statistics import BOUNDS_S, LAGS
from scaler.arrivals.map_counts import Counting, matrices
from scaler.arrivals.map_moments import base_correlation, map2
from scaler.arrivals.processes import Poisson

if TYPE_CHECKING:
    from scaler.arrivals.gap_statistics import GapStatistics
    from scaler.arrivals.map_counts import Markovian
    from scaler.arrivals.processes import Times

__all__ = ["Fit", "fitted", "longer_than", "spelled"]

_LEAST = 50  # gaps to tell anything from
_LIMIT = 1.358  # over the root of their number: one in twenty is beyond
_LIMIT_MEAN_FITTED = 1.094  # likewise for exponential gaps whose mean is their own (Lilliefors)
_SCORE = 3.0  # deviations at which a correlation, or an SCV, is none of chance
_LONG = 1e3  # times the mean
_DECAYS: Times = 1 - np.logspace(-5, 0, 401)


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted process, and how well it fits.

    Attributes:
        process: The process; None without any gap.
        gaps: Number of gaps that it was fitted to.
        statistic: Name of the statistic in `value`.
        value: Distance between gaps and process; NaN if there were too few gaps.
        limit: Value that only one in twenty good fits exceeds.
        note: Properties of the gaps that the process lacks, or why there is no statistic.
    """

    process: Markovian | None
    gaps: int
    statistic: str = "Kolmogorov-Smirnov"
    value: float = math.nan
    limit: float = math.nan
    note: str = ""

    @property
    def accepted(self) -> bool:
        """Whether the statistic is within its limit."""
        return self.value <= self.limit

    def __str__(self) -> str:
        verdict = "accepted" if self.accepted else "not accepted"
        if math.isnan(self.value):
            said = self.note or "not tested"
        else:
            said = f"{self.statistic} {self.value:.4f}, limit {self.limit:.4f}: {verdict}"
        return f"{spelled(self.process)} fitted to {self.gaps} gaps; {said}"


class _Distance(NamedTuple):
    value: float
    limit: float


def fitted(statistics: GapStatistics) -> Fit:
    """Return the simplest process that the gaps do not contradict."""
    mean_s = float(statistics.moments[0])
    if statistics.count == 0 or not mean_s > 0:
        return Fit(None, statistics.count, note="no gaps above 0")
    poisson = Poisson(1 / mean_s)
    if statistics.count < _LEAST:
        note = f"fewer than {_LEAST} gaps determine only their mean"
        return Fit(poisson, statistics.count, note=note)
    if not np.isfinite(statistics.moments).all():
        return Fit(poisson, statistics.count, note="the gaps' moments are not finite")
    plain = _distance(statistics, poisson, 0.0, _LIMIT_MEAN_FITTED)
    if plain.value <= plain.limit and _memoryless(statistics):
        return Fit(poisson, statistics.count, value=plain.value, limit=plain.limit)
    scv, (_, _, cubed) = statistics.scv, statistics.moments.tolist()
    decay = _decay(statistics, scv)
    process, short = map2(mean_s, scv, cubed / mean_s**3, decay)
    together = base_correlation(scv) * decay / (1 - decay) if scv > 1 else 0.0
    near = _distance(statistics, process, max(together, 0.0), _LIMIT)
    note = f"it cannot have {short}" if short else ""
    return Fit(process, statistics.count, value=near.value, limit=near.limit, note=note)


def longer_than(process: Markovian, times_s: Times) -> Times:
    """Return the probability that a gap exceeds each of these times, in their shape."""
    d0, d1 = matrices(process)
    if isinstance(process, Poisson):
        share: Times = np.exp(-process.rate_rps * times_s)
        return share
    silent = Counting(d0, np.zeros_like(d1), 1)
    shares: Times = silent.at(times_s).within[:, 0].sum(axis=-1) @ process.at_arrivals()
    return shares


def spelled(process: Markovian | None) -> str:
    """Describe a process in words, with its rate and burstiness."""
    if process is None:
        return "nothing"
    if isinstance(process, Poisson):
        return f"Poisson at {process.rate_rps:.4g}/s"
    arriving = process.arriving
    plain = all(rate == 0 for i, row in enumerate(arriving) for j, rate in enumerate(row) if i != j)
    kind = "MMPP" if plain else "MAP"
    return (
        f"{kind}({len(arriving)}) at {process.mean_rate:.4g}/s, SCV {process.gap_scv:.3g}, "
        f"lag-1 correlation {process.gap_correlation():.3g}"
    )


def _distance(
    statistics: GapStatistics, process: Markovian, together: float, limit: float
) -> _Distance:
    """Return the distance between histogram and process at the bounds of the bins."""
    mean_s = float(statistics.moments[0])
    inside = mean_s * _LONG > BOUNDS_S  # beyond, both are nought
    apart = np.abs(statistics.beyond() - longer_than(process, np.where(inside, BOUNDS_S, 0.0)))
    worth = statistics.count / (1 + 2 * together)
    return _Distance(float(apart[inside].max()), limit / math.sqrt(worth))


def _memoryless(statistics: GapStatistics) -> bool:
    """Return whether variation and correlations are consistent with a Poisson process."""
    count = statistics.count
    straight = abs(statistics.scv - 1) <= _SCORE * math.sqrt(8 / count)
    known = statistics.pairs > count / 2
    chance = _SCORE / np.sqrt(np.maximum(statistics.pairs, 1))
    return bool(straight and (np.abs(statistics.correlations()) <= chance)[known].all())


def _decay(statistics: GapStatistics, scv: float) -> float:
    """Return the factor of the autocorrelation per lag, by least squares over all lags."""
    known = statistics.pairs > statistics.count / 2
    if scv <= 1 or not known.any():
        return 0.0
    lags = np.array(LAGS, dtype=float)[known]
    seen = statistics.correlations()[known]
    if seen[0] < 0:  # alternates, and is gone after a few
        return float(max(seen[0] / base_correlation(scv), -1.0))
    expected = base_correlation(scv) * _DECAYS[:, None] ** lags
    return float(_DECAYS[((expected - seen) ** 2).sum(axis=1).argmin()])
