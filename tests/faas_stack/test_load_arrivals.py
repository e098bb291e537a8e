"""Tests of due times: rates, order and traces."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from faas_stack.load.arrivals import (
    Segment,
    arrivals,
    constant,
    of_trace,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_uniform_arrivals_are_evenly_spaced_from_zero() -> None:
    """Uniform arrivals come at multiples of the gap, the first at zero."""
    times = list(arrivals(constant(4.0, 1.0), "uniform", seed=1))
    assert [0.0, 0.25, 0.5, 0.75] == pytest.approx(times)


def test_poisson_gaps_have_expected_mean_and_deviation() -> None:
    """The mean and the standard deviation of the gaps both equal 1/rate."""
    times = list(arrivals(constant(1000.0, 20.0), "poisson", seed=7))
    gaps = [later - earlier for earlier, later in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert pytest.approx(1e-3, rel=0.03) == mean
    assert pytest.approx(1e-3, rel=0.03) == deviation


def test_only_same_seed_gives_same_arrivals() -> None:
    """The same seed gives the same arrivals, and another seed gives others."""
    first, again, other = (
        list(arrivals(constant(50.0, 2.0), "poisson", seed)) for seed in (3, 3, 4)
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize("kind", ["poisson", "uniform"])
def test_each_segment_has_its_own_rate(kind: str) -> None:
    """Each segment has the number of requests of its own rate, in order, and none at rate zero."""
    segments = [Segment(0, 10, 100.0), Segment(10, 20, 0.0), Segment(20, 30, 400.0)]
    times = list(arrivals(segments, kind, seed=5))
    counts = [sum(s.start_s <= t < s.end_s for t in times) for s in segments]
    assert sorted(times) == times
    assert [1000, 0, 4000] == pytest.approx(counts, rel=0.1)
    assert len(times) == sum(counts)


def test_long_gap_continues_across_segments() -> None:
    """A gap longer than a segment continues in the next instead of starting again."""
    segments = [Segment(i, i + 1, 0.25) for i in range(16)]
    assert [0, 4, 8, 12] == pytest.approx(list(arrivals(segments, "uniform", seed=1)))


def test_trace_rows_become_segments_with_scaled_rates(tmp_path: Path) -> None:
    """Rows become segments with scaled rates, and time starts at the first row.

    Spreadsheets put a byte order mark before the header, which is no part of it.
    """
    path = tmp_path / "trace.csv"
    path.write_text("\ufeffstart_s,requests_per_minute\n600,60\n660,120\n", encoding="utf-8")
    segments = of_trace(path, scale=2)
    assert [Segment(0, 60, 2.0), Segment(60, 120, 4.0)] == segments
