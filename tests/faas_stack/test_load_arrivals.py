"""Due times: rates, order, traces."""

from __future__ import annotations

from itertools import pairwise

import pytest

from carpool.errors import ConfigError
from faas_stack.load.arrivals import (
    Segment,
    arrivals,
    constant,
    expected_requests,
    read_trace,
    span_s,
)


def test_uniform_arrivals_are_evenly_spaced_from_zero() -> None:
    """Uniform arrivals come at multiples of the gap, the first at once."""
    times = list(arrivals(constant(4.0, 1.0), "uniform", seed=1))
    assert [0.0, 0.25, 0.5, 0.75] == pytest.approx(times)


def test_poisson_arrivals_have_the_rate_and_the_spread_of_a_poisson_process() -> None:
    """Mean gap and its standard deviation both equal 1/rate."""
    times = list(arrivals(constant(1000.0, 20.0), "poisson", seed=7))
    gaps = [later - earlier for earlier, later in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert pytest.approx(1e-3, rel=0.03) == mean
    assert pytest.approx(1e-3, rel=0.03) == deviation


def test_a_seed_repeats_its_arrivals_and_another_seed_does_not() -> None:
    """Runs can be repeated exactly."""
    first, again, other = (
        list(arrivals(constant(50.0, 2.0), "poisson", seed)) for seed in (3, 3, 4)
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize("kind", ["poisson", "uniform"])
def test_a_change_of_rate_holds_from_its_start(kind: str) -> None:
    """Each segment gets its own rate's share of requests, silence none, and order is kept."""
    segments = [Segment(0, 10, 100.0), Segment(10, 20, 0.0), Segment(20, 30, 400.0)]
    times = list(arrivals(segments, kind, seed=5))
    counts = [sum(s.start_s <= t < s.end_s for t in times) for s in segments]
    assert sorted(times) == times
    assert [1000, 0, 4000] == pytest.approx(counts, rel=0.1)
    assert len(times) == sum(counts)
    assert expected_requests(segments) == 5000


def test_a_slow_rate_may_pass_over_short_segments() -> None:
    """A gap longer than a segment is carried over, not restarted in each segment."""
    segments = [Segment(i, i + 1, 0.25) for i in range(16)]
    assert [0, 4, 8, 12] == pytest.approx(list(arrivals(segments, "uniform", seed=1)))


def test_a_trace_gives_rates_per_second_and_its_last_row_a_length() -> None:
    """Rows turn into segments; scale multiplies; time counts from the first row."""
    segments = read_trace(["start_s,requests_per_minute", "600,60", "660,120"], scale=2)
    assert [Segment(0, 60, 2.0), Segment(60, 120, 4.0)] == segments
    assert span_s(segments) == 120


def test_every_bad_row_of_a_trace_is_reported_with_its_line() -> None:
    """A user can fix the whole file in one pass."""
    with pytest.raises(ConfigError) as caught:
        read_trace(["start,rate", "0,60", "60,many", "30,5", "0,1", "90,-1", "nan,1", "1,2,3"])
    message = str(caught.value)
    for part in (
        "first line = 'start,rate': expected start_s,requests_per_minute",
        "line 3 = '60,many'",
        "line 5 = '0': expected a start after 30",
        "line 6 = '90,-1'",
        "line 7 = 'nan,1'",
        "line 8 = '1,2,3'",
    ):
        assert part in message


@pytest.mark.parametrize("lines", [[], ["start_s,requests_per_minute"]])
def test_an_empty_trace_is_an_error(lines: list[str]) -> None:
    """No rows, no load: say so."""
    with pytest.raises(ConfigError, match=r"first line|at least one row"):
        read_trace(lines)
