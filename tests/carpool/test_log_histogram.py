"""Histograms whose bins grow: any time has its bin, and its bin stands for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool import log_histogram


@given(st.floats(log_histogram.FIRST_S, 1e6))
def test_a_bin_stands_for_its_times(time_s: float) -> None:
    """The middle of a time's bin is within a tenth of it."""
    assert log_histogram.middle_s(log_histogram.bin_of(time_s)) == pytest.approx(time_s, rel=0.1)


@given(st.floats(0, 1e12))
def test_every_time_has_a_bin(time_s: float) -> None:
    """No time is too short or too long."""
    assert 0 <= log_histogram.bin_of(time_s) < log_histogram.BINS


@given(st.lists(st.floats(0, 1e9), min_size=2, max_size=2))
def test_longer_times_have_later_bins(times_s: list[float]) -> None:
    """Bins are in order."""
    shorter, longer = sorted(times_s)
    assert log_histogram.bin_of(shorter) <= log_histogram.bin_of(longer)


def test_a_quantile_is_the_first_bin_that_reaches_it() -> None:
    """Half of four is reached by the second."""
    counts = {
        log_histogram.bin_of(0.1): 2,
        log_histogram.bin_of(1.0): 1,
        log_histogram.bin_of(10.0): 1,
    }
    assert log_histogram.quantile_s(counts, 0.5) == pytest.approx(0.1, rel=0.06)
    assert log_histogram.quantile_s(counts, 0.75) == pytest.approx(1.0, rel=0.06)
    assert log_histogram.quantile_s(counts, 0.99) == pytest.approx(10.0, rel=0.06)
    assert log_histogram.quantile_s({}, 0.99) is None
