"""Processes fitted to samples: the right kind, near what was sampled, and how well is said."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from carpool.errors import ConfigError
from scaler.arrivals.count_statistics import CountStatistics, fitted_to_counts
from scaler.arrivals.fit import fitted, longer_than
from scaler.arrivals.gap_statistics import BOUNDS_S, LAGS, GapStatistics
from scaler.arrivals.markov import MarkovArrivals, mmpp2
from scaler.arrivals.processes import Poisson, gaps, timestamps
from scaler.arrivals.superposition import superposed

if TYPE_CHECKING:
    from scaler.arrivals.map_counts import Markovian

BURSTY = mmpp2((5, 50), (0.5, 1.0))
PUBLISHED = mmpp2((10, 120), (0.05, 0.05))
ERLANG = MarkovArrivals(((-20, 20), (0, -20)), ((0, 0), (20, 0)))


def statistics(process: Markovian, count: int = 100_000, seed: int = 1) -> GapStatistics:
    """Of so many sampled gaps."""
    return GapStatistics.of(gaps(process, count, seed))


@pytest.mark.parametrize("rate", [1e-4, 7.0, 1e5])
def test_poisson_is_found(rate: float) -> None:
    """At any rate, and accepted."""
    fit = fitted(statistics(Poisson(rate), 20_000))
    assert isinstance(fit.process, Poisson)
    assert fit.accepted
    assert pytest.approx(rate, rel=0.03) == fit.process.rate_rps
    assert "Poisson at" in str(fit)
    assert "accepted" in str(fit)


@pytest.mark.parametrize("process", [BURSTY, PUBLISHED])
def test_bursty_arrivals_are_found(process: MarkovArrivals) -> None:
    """Rate, variation and correlation near those of the process; an MMPP(2), and accepted."""
    fit = fitted(statistics(process, 400_000))
    found = fit.process
    assert isinstance(found, MarkovArrivals)
    assert fit.accepted
    assert "MMPP(2)" in str(fit)
    assert pytest.approx(process.mean_rate, rel=0.05) == found.mean_rate
    assert pytest.approx(process.gap_scv, rel=0.05) == found.gap_scv
    assert pytest.approx(process.gap_correlation(), abs=0.03) == found.gap_correlation()
    assert pytest.approx(process.dispersion, rel=0.35) == found.dispersion


def test_regular_arrivals_are_found() -> None:
    """Erlang gaps vary half as much."""
    fit = fitted(statistics(ERLANG, 20_000))
    assert isinstance(fit.process, MarkovArrivals)
    assert fit.accepted
    assert pytest.approx(0.5, abs=0.02) == fit.process.gap_scv


def test_what_is_of_no_process_of_two_phases_is_not_accepted() -> None:
    """Gaps of one length, and gaps of two."""
    for sample in ([0.1] * 1000, [0.001] * 500 + [1.0] * 500):
        fit = fitted(GapStatistics.of(sample))
        assert not fit.accepted
        assert fit.process is not None
        assert math.isfinite(fit.process.mean_rate)
        assert "not accepted" in str(fit)


@pytest.mark.parametrize(
    "sample", [[], [0.0], [0.0, 0.0], [1.0], [1e-300, 1e300], [0.0] * 99, [1e200] * 60]
)
def test_next_to_nothing(sample: list[float]) -> None:
    """Gives Poisson, or nothing; and says so."""
    with np.errstate(over="ignore", invalid="ignore"):
        fit = fitted(GapStatistics.of(sample))
    assert fit.process is None or isinstance(fit.process, Poisson)
    assert not fit.accepted
    assert fit.note


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_what_is_no_gap_is_refused(bad: float) -> None:
    """By name."""
    with pytest.raises(ConfigError, match="gaps"):
        GapStatistics.of([1.0, bad])


@pytest.mark.parametrize("cut", [0, 1, 3, 300, 700, 5000])
def test_statistics_of_two_stretches_are_those_of_both(cut: int) -> None:
    """So a fit can go on without the past."""
    sample = gaps(BURSTY, 6000, 5)
    whole = GapStatistics.of(sample)
    both = GapStatistics.of(sample[:cut]).merge(GapStatistics.of(sample[cut:]))
    assert whole.count == both.count
    assert pytest.approx(whole.powers.tolist()) == both.powers.tolist()
    assert pytest.approx(whole.products.tolist()) == both.products.tolist()
    assert whole.pairs.tolist() == both.pairs.tolist()
    assert whole.histogram.tolist() == both.histogram.tolist()
    assert whole.first.tolist() == both.first.tolist()
    assert whole.last.tolist() == both.last.tolist()


def test_many_short_stretches() -> None:
    """Each shorter than the longest lag."""
    sample = gaps(BURSTY, 2000, 6)
    merged = GapStatistics()
    for part in np.array_split(sample, 40):
        merged = merged.merge(GapStatistics.of(part))
    whole = GapStatistics.of(sample)
    assert pytest.approx(whole.products.tolist()) == merged.products.tolist()
    assert len(LAGS) == len(merged.correlations())


def test_a_histogram_suffices_where_order_does_not_matter() -> None:
    """Counts in the bins of a sidecar's histograms, from a renewal process and from Poisson."""
    bounds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]
    for process in (Poisson(20.0), BURSTY):
        sample = gaps(process, 50_000, 7)
        counts = np.bincount(np.searchsorted(bounds, sample), minlength=len(bounds) + 1)
        told = GapStatistics.of_histogram(bounds, counts.tolist(), float(sample.sum()))
        assert len(sample) == told.count
        assert pytest.approx(sample.mean(), rel=0.05) == told.moments[0]
        assert pytest.approx(GapStatistics.of(sample).scv, rel=0.15) == told.scv
        fit = fitted(told)
        assert fit.process is not None
        assert pytest.approx(process.mean_rate, rel=0.05) == fit.process.mean_rate


def test_longer_gaps() -> None:
    """Exponential, of any process."""
    same = mmpp2((7, 7), (0.3, 2))
    at = BOUNDS_S[(BOUNDS_S > 1e-3) & (BOUNDS_S < 1)]
    assert pytest.approx(np.exp(-7 * at).tolist()) == longer_than(same, at).tolist()
    assert pytest.approx(np.exp(-7 * at).tolist()) == longer_than(Poisson(7.0), at).tolist()


def counted(process: Markovian, interval_s: float, intervals: int) -> CountStatistics:
    """Of so many sampled intervals."""
    times = timestamps(process, interval_s * intervals, seed=8)
    counts = np.histogram(times, bins=np.arange(intervals + 1) * interval_s)[0]
    return CountStatistics.of(counts, interval_s)


def test_counts_of_poisson_arrivals() -> None:
    """Vary as chance has it."""
    fit = fitted_to_counts(counted(Poisson(20.0), 10.0, 2000))
    assert isinstance(fit.process, Poisson)
    assert fit.accepted


def test_counts_of_bursty_arrivals() -> None:
    """Rates and switching from counts of ten seconds each alone."""
    fit = fitted_to_counts(counted(PUBLISHED, 5.0, 20_000))
    assert isinstance(fit.process, MarkovArrivals)
    assert fit.accepted
    rates = (fit.process.arriving[0][0], fit.process.arriving[1][1])
    assert pytest.approx((10, 120), rel=0.15, abs=3) == rates
    assert pytest.approx(0.05, rel=0.25) == fit.process.silent[0][1]


def test_counts_merge() -> None:
    """Two stretches are as good as one."""
    counts = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0]
    whole = CountStatistics.of(counts, 1.0)
    for cut in range(len(counts) + 1):
        parts = CountStatistics.of(counts[:cut], 1.0), CountStatistics.of(counts[cut:], 1.0)
        assert whole == parts[0].merge(parts[1])


@pytest.mark.parametrize("counts", [[], [0] * 50, [5] * 50, [1000] + [0] * 49, [0, 100] * 30])
def test_counts_that_tell_little(counts: list[int]) -> None:
    """A process whose numbers are numbers, or none."""
    fit = fitted_to_counts(CountStatistics.of(counts, 1.0))
    assert (fit.process is None) == (sum(counts) == 0)
    assert fit.process is None or math.isfinite(fit.process.mean_rate)


def test_superposition() -> None:
    """Rates add up; Poisson arrivals stay Poisson; variances of counts add up."""
    assert Poisson(5.0) == superposed([Poisson(2.0), Poisson(3.0)])
    assert Poisson(0.0) == superposed([])
    both = superposed([BURSTY, Poisson(4.0), PUBLISHED])
    assert isinstance(both, MarkovArrivals)
    assert pytest.approx(20 + 4 + 65) == both.mean_rate
    spread = 20 * BURSTY.dispersion + 4 + 65 * PUBLISHED.dispersion
    assert pytest.approx(spread / 89, rel=1e-6) == both.dispersion


def test_too_many_phases_are_cut() -> None:
    """The mean rate stays."""
    both = superposed([BURSTY] * 5)
    assert isinstance(both, MarkovArrivals)
    assert 8 == len(both.silent)
    assert pytest.approx(100) == both.mean_rate
