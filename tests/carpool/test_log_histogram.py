"""Histograms with growing bins: every time has a bin, whose middle is close to it."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool import log_histogram


@given(st.floats(log_histogram.FIRST_S, 1e6))
def test_bin_middle_is_within_a_tenth_of_its_times(time_s: float) -> None:
    """The middle of a time's bin is within a tenth of it."""
    assert log_histogram.middle_s(log_histogram.bin_of(time_s)) == pytest.approx(time_s, rel=0.1)


@given(st.floats(0, 1e12))
def test_every_time_has_a_bin(time_s: float) -> None:
    """No time is too short or too long."""
    assert 0 <= log_histogram.bin_of(time_s) < log_histogram.BINS


@given(st.lists(st.floats(0, 1e9), min_size=2, max_size=2))
def test_longer_times_have_later_bins(times_s: list[float]) -> None:
    """A longer time never has an earlier bin."""
    shorter, longer = sorted(times_s)
    assert log_histogram.bin_of(shorter) <= log_histogram.bin_of(longer)


def test_quantile_is_in_the_first_bin_that_reaches_it() -> None:
    """A quantile lies in the first bin whose cumulative count reaches it."""
    counts = {
        log_histogram.bin_of(0.1): 2,
        log_histogram.bin_of(1.0): 1,
        log_histogram.bin_of(10.0): 1,
    }
    assert log_histogram.quantile_s(counts, 0.5) == pytest.approx(0.1, rel=0.1)
    assert log_histogram.quantile_s(counts, 0.75) == pytest.approx(1.0, rel=0.1)
    assert log_histogram.quantile_s(counts, 0.99) == pytest.approx(10.0, rel=0.1)
    assert log_histogram.quantile_s({}, 0.99) is None


@given(st.lists(st.floats(0.0015, 1e5), min_size=1), st.floats(0, 1))
def test_quantile_is_in_the_bin_of_the_time_with_its_rank(
    times_s: list[float], share: float
) -> None:
    """A quantile lies between the edges of the bin with the time of that rank."""
    rank = max(1, math.ceil(share * len(times_s)))
    exact_s = sorted(times_s)[rank - 1]
    quantile_s = log_histogram.quantile_s(Counter(map(log_histogram.bin_of, times_s)), share)
    assert quantile_s == pytest.approx(exact_s, rel=0.11)


def test_bin_is_evenly_filled() -> None:
    """Quantiles rise within a bin, whose middle is the median of its counts."""
    number = log_histogram.bin_of(0.1)
    low, middle, high = (log_histogram.quantile_s({number: 4}, share) for share in (0.25, 0.5, 1.0))
    assert low
    assert middle
    assert high
    assert low < middle < high < 1.1 * low
    assert middle == pytest.approx(log_histogram.middle_s(number))
    assert log_histogram.FIRST_S / 2 == log_histogram.quantile_s({0: 2}, 0.5)
