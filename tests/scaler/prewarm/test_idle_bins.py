"""Bins of idle times."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.errors import ConfigError
from scaler.prewarm.idle_bins import Bins

BINS = st.one_of(
    st.builds(Bins.even, st.floats(0.1, 100), st.floats(100, 5000)),
    st.builds(Bins.growing, st.floats(0.1, 100), st.floats(1.05, 3), st.floats(100, 5000)),
)


def test_even_bins_reach_the_range() -> None:
    """Four hours are 240 bins of a minute; the last bin may extend beyond the range."""
    assert 240 == len(Bins.even(60, 14400))
    assert (0, 60, 120) == Bins.even(60, 100).edges_s


def test_growing_bins_have_one_ratio() -> None:
    """After the first bin, edges grow by a constant factor until they reach the range."""
    assert (0, 10, 20, 40, 80) == Bins.growing(10, 2, 50).edges_s


@given(bins=BINS, idle_s=st.floats(0, 10000))
def test_bin_includes_lower_edge_and_excludes_upper(bins: Bins, idle_s: float) -> None:
    """Every idle time is in one bin or out of bounds."""
    index = bins.index(idle_s)
    if idle_s >= bins.edges_s[-1]:
        assert len(bins) == index
    else:
        assert bins.edges_s[index] <= idle_s < bins.edges_s[index + 1]


@given(bins=BINS)
def test_edge_belongs_to_upper_bin(bins: Bins) -> None:
    """An edge belongs to the upper of the two bins that share it."""
    assert list(range(len(bins) + 1)) == [bins.index(edge_s) for edge_s in bins.edges_s]


def test_negative_idle_time_counts_as_zero() -> None:
    """An idle time below 0 counts as 0."""
    assert 0 == Bins.even(60, 300).index(-1e-9)


@pytest.mark.parametrize("edges", [(), (0.0,), (1.0, 2.0), (0.0, 2.0, 2.0), (0.0, math.inf)])
def test_invalid_edges_are_refused(edges: tuple[float, ...]) -> None:
    """Edges must be finite, ascend from 0 and be at least two."""
    with pytest.raises(ConfigError, match="ascending from 0"):
        Bins(edges)
