"""Arrival processes fitted to counts of equal intervals."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from carpool.arrivals.count_statistics import CountStatistics, fitted_to_counts, switching
from carpool.arrivals.markov import MarkovArrivals, mmpp2
from carpool.arrivals.processes import Poisson, timestamps

if TYPE_CHECKING:
    from carpool.arrivals.map_counts import Markovian

PUBLISHED = mmpp2((10, 120), (0.05, 0.05))


def counted(process: Markovian, interval_s: float, intervals: int) -> CountStatistics:
    """Return the statistics of the counts in ``intervals`` sampled intervals."""
    times = timestamps(process, interval_s * intervals, seed=8)
    counts = np.histogram(times, bins=np.arange(intervals + 1) * interval_s)[0]
    return CountStatistics.of(counts, interval_s)


def test_counts_of_poisson_arrivals() -> None:
    """Counts of Poisson arrivals give an accepted Poisson process."""
    fit = fitted_to_counts(counted(Poisson(20.0), 10.0, 2000))
    assert isinstance(fit.process, Poisson)
    assert fit.accepted


def test_counts_of_bursty_arrivals() -> None:
    """Counts alone, in intervals of 5 seconds, give the rates of an MMPP(2) and its switching."""
    fit = fitted_to_counts(counted(PUBLISHED, 5.0, 20_000))
    assert isinstance(fit.process, MarkovArrivals)
    assert fit.accepted
    rates = (fit.process.arriving[0][0], fit.process.arriving[1][1])
    assert pytest.approx((10, 120), rel=0.15, abs=3) == rates
    assert pytest.approx(0.05, rel=0.25) == fit.process.silent[0][1]


def test_counts_merge() -> None:
    """Merged statistics of two sequences of counts equal those of the whole."""
    counts = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0]
    whole = CountStatistics.of(counts, 1.0)
    for cut in range(len(counts) + 1):
        parts = CountStatistics.of(counts[:cut], 1.0), CountStatistics.of(counts[cut:], 1.0)
        assert whole == parts[0].merge(parts[1])


@pytest.mark.parametrize("counts", [[], [0] * 50, [5] * 50, [1000] + [0] * 49, [0, 100] * 30])
def test_counts_that_tell_little(counts: list[int]) -> None:
    """Counts with little information give a process with a finite rate; none only if all are 0."""
    fit = fitted_to_counts(CountStatistics.of(counts, 1.0))
    assert (fit.process is None) == (sum(counts) == 0)
    assert fit.process is None or math.isfinite(fit.process.mean_rate)


def test_too_few_counts_are_not_accepted() -> None:
    """Fewer than 30 counts give a Poisson process at their rate, which is not accepted."""
    fit = fitted_to_counts(CountStatistics.of([4.0] * 29, 2.0))
    assert (Poisson(2.0), False) == (fit.process, fit.accepted)


@pytest.mark.parametrize(
    ("rates", "switch"), [((10, 120), (0.05, 0.05)), ((10, 200), (0.01, 0.03)), ((0, 9), (1, 3))]
)
def test_a_rate_that_switches(rates: tuple[float, float], switch: tuple[float, float]) -> None:
    """Mean, variance, skewness and decay of a switching rate determine the process."""
    high = switch[0] / sum(switch)
    mean = rates[0] * (1 - high) + rates[1] * high
    variance = high * (1 - high) * (rates[1] - rates[0]) ** 2
    skewness = (1 - 2 * high) / math.sqrt(high * (1 - high))
    process = switching(mean, variance, skewness, sum(switch))
    assert isinstance(process, MarkovArrivals)
    assert pytest.approx(rates, abs=1e-6) == (process.arriving[0][0], process.arriving[1][1])
    assert pytest.approx(switch) == (process.silent[0][1], process.silent[1][0])


def test_a_rate_that_would_fall_below_zero() -> None:
    """A skewness that makes the lower rate negative is limited to a rate of 0."""
    process = switching(10.0, 400.0, 0.0, 1.0)
    assert isinstance(process, MarkovArrivals)
    assert pytest.approx(0.0, abs=1e-9) == process.arriving[0][0]
    assert pytest.approx(10.0) == process.mean_rate


def test_a_rate_that_hardly_varies() -> None:
    """A rate whose variance is next to nothing gives a Poisson process."""
    assert Poisson(10.0) == switching(10.0, 1e-6, 0.0, 1.0)
