"""Histograms of idle times: counting, forgetting, saving and merging."""

from __future__ import annotations

import itertools
import json
import math
import statistics
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.errors import ConfigError
from scaler.prewarm.idle_bins import Bins
from scaler.prewarm.idle_histogram import IdleHistogram

if TYPE_CHECKING:
    from collections.abc import Sequence

MINUTES = Bins.even(60, 600)
WINDOW_S = 2400.0  # slices of 100 s
OBSERVED = st.lists(st.tuples(st.floats(0, 900), st.integers(0, 10000)), max_size=40)


def filled(
    observed: Sequence[tuple[float, int]], window_s: float | None = WINDOW_S
) -> IdleHistogram:
    """Return a histogram of idle times, each given with the time when it ended."""
    histogram = IdleHistogram(MINUTES, window_s)
    for idle_s, now_s in observed:
        histogram.add(idle_s, now_s)
    return histogram


def merged(*parts: IdleHistogram) -> IdleHistogram:
    """Return one histogram merged from ``parts``."""
    whole = IdleHistogram(MINUTES, WINDOW_S)
    for part in parts:
        whole.merge(part)
    return whole


def test_counts_by_bin_and_out_of_bounds() -> None:
    """A bin includes its lower edge; values from the last edge on are out of bounds."""
    histogram = filled([(0, 0), (59.9, 0), (60, 0), (599, 0), (600, 0), (1e9, 0)], None)
    assert (2, 1, 0, 0, 0, 0, 0, 0, 0, 1, 2) == histogram.counts
    assert (6, 4) == (histogram.total, histogram.in_bounds)
    assert 2 / 6 == histogram.out_of_bounds_share


def test_an_empty_histogram() -> None:
    """The out-of-bounds share and the variation are 0."""
    empty = IdleHistogram(MINUTES)
    assert (0, 0, 0.0, 0.0) == (
        empty.total,
        empty.in_bounds,
        empty.out_of_bounds_share,
        empty.variation,
    )


def test_quantiles_are_edges_of_their_bin() -> None:
    """The head is rounded down and the tail up; an integer rank stays in its bin."""
    histogram = filled([(30, 0)] * 7 + [(90, 0)] * 92 + [(300, 0)], None)
    assert (0, 60) == (histogram.head_s(0.07), histogram.head_s(0.071))
    assert (120, 360) == (histogram.tail_s(0.99), histogram.tail_s(0.991))
    assert (0, 360) == (histogram.head_s(0), histogram.tail_s(1))


@given(observed=OBSERVED, share=st.floats(0, 1))
def test_quantile_matches_sorted_idle_times(
    observed: list[tuple[float, int]], share: float
) -> None:
    """The bin holds the idle time of the rank ``ceil(share * n)``."""
    histogram = filled(observed, None)
    inside = sorted(idle_s for idle_s, _ in observed if idle_s < 600)
    if not inside:
        return
    of_rank = inside[max(1, math.ceil(share * len(inside) - 1e-9)) - 1]
    assert histogram.head_s(share) <= of_rank < histogram.tail_s(share)
    assert 60 == histogram.tail_s(share) - histogram.head_s(share)


@given(observed=OBSERVED)
def test_variation_is_computed_from_counts(observed: list[tuple[float, int]]) -> None:
    """The variation is deviation over mean of the counts in bounds, with empty bins."""
    histogram = filled(observed)
    counts = histogram.counts[:-1]
    mean = statistics.fmean(counts)
    expected = statistics.pstdev(counts) / mean if mean else 0.0
    assert expected == pytest.approx(histogram.variation, abs=1e-6)


def test_window_forgets_by_whole_slices() -> None:
    """A window of 2400 s forgets the first slice of 100 s once the 25th has begun."""
    histogram = filled([(30, 50), (90, 150)])
    histogram.forget(2399)
    assert 2 == histogram.total
    histogram.forget(2400)
    assert (0, 1) == histogram.counts[:2]
    histogram.forget(1e9)
    assert 0 == histogram.total


def test_without_a_window_nothing_is_forgotten() -> None:
    """An idle time of a year ago counts as much as today's."""
    histogram = filled([(30, 0), (30, 365 * 86400)], None)
    histogram.forget(1e12)
    assert 2 == histogram.total


def test_idle_time_reported_after_its_window_is_ignored() -> None:
    """An idle time that is reported after its window is ignored."""
    histogram = filled([(30, 5000), (90, 0)])
    assert (1, 0) == histogram.counts[:2]


@given(observed=OBSERVED)
def test_window_counts_only_last_slices(observed: list[tuple[float, int]]) -> None:
    """Only the last 24 slices count, in whatever order idle times are added."""
    last = max((now_s for _, now_s in observed), default=0) // 100
    inside = [idle_s for idle_s, now_s in observed if now_s // 100 > last - 24]
    expected = filled([(idle_s, 0) for idle_s in inside], None)
    assert expected.counts == filled(observed).counts


def test_memory_is_bounded_whatever_the_traffic() -> None:
    """The saved form has at most 24 slices, each with at most one number per bin plus one."""
    histogram = IdleHistogram(MINUTES, WINDOW_S)
    for step in range(20000):
        histogram.add(step * 7 % 900, step * 5)
    slices = histogram.to_dict()["slices"]
    assert 24 == len(slices)
    assert max(len(counts) for counts in slices.values()) <= len(MINUTES) + 1


@given(observed=OBSERVED)
def test_saved_form_round_trips_through_json(observed: list[tuple[float, int]]) -> None:
    """A histogram saved and read again is equal and continues equally."""
    histogram = filled(observed)
    read = histogram.read(json.loads(json.dumps(histogram.to_dict())))
    assert histogram.to_dict() == read.to_dict()
    for each in (histogram, read):
        each.add(77, 10500)
    assert histogram.counts == read.counts
    assert histogram.variation == read.variation


@given(one=OBSERVED, other=OBSERVED)
def test_merge_equals_one_histogram_of_all_observations(
    one: list[tuple[float, int]], other: list[tuple[float, int]]
) -> None:
    """Merging two histograms equals one histogram with all observations."""
    both = filled(one)
    both.merge(filled(other))
    assert filled(one + other).to_dict() == both.to_dict()


@given(parts=st.lists(OBSERVED, min_size=3, max_size=3))
def test_merging_is_commutative_and_associative(parts: list[list[tuple[float, int]]]) -> None:
    """The result does not depend on order and grouping."""
    first, *others = (
        merged(*(filled(parts[index]) for index in order)).to_dict()
        for order in itertools.permutations(range(3))
    )
    assert [first] * 5 == others
    a, b, c = (filled(part) for part in parts)
    assert merged(merged(a, b), c).to_dict() == merged(a, merged(b, c)).to_dict()


@given(observed=OBSERVED)
def test_an_empty_histogram_adds_nothing(observed: list[tuple[float, int]]) -> None:
    """Merging an empty histogram changes nothing."""
    histogram = filled(observed)
    histogram.merge(IdleHistogram(MINUTES, WINDOW_S))
    assert filled(observed).to_dict() == histogram.to_dict()


GOOD: dict[str, Any] = {"edges_s": list(MINUTES.edges_s), "window_s": WINDOW_S, "slices": {}}


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"slices": {"3": {"11": 1}}}, "slices.3 = '11'"),
        ({"slices": {"3": {"-1": 1}}}, "slices.3 = '-1'"),
        ({"slices": {"3": {"1": 0}}}, "slices.3.1 = '0'"),
        ({"slices": {"3": {"1": 1.5}}}, "slices.3.1 = '1.5'"),
        ({"slices": {"3": {"01": 1}}}, "slices.3 = '01'"),
        ({"slices": {"noon": {"1": 1}}}, "slices = 'noon'"),
        ({"edges_s": [0, 60]}, "edges_s = '2 edges'"),
        ({"window_s": 60}, "window_s = '60'"),
        ({"window": 60}, "window"),
    ],
)
def test_malformed_saved_form_is_refused(changed: dict[str, Any], named: str) -> None:
    """The error names the fault, and the histogram does not change."""
    histogram = filled([(30, 0)])
    with pytest.raises(ConfigError, match=named):
        histogram.read({**GOOD, **changed})
    assert 1 == histogram.total


def test_saved_form_that_is_no_object_is_refused() -> None:
    """A form that is not an object is refused."""
    with pytest.raises(ConfigError):
        IdleHistogram(MINUTES).read([])


def test_counts_of_clock_that_was_ahead_are_dropped() -> None:
    """After a clock is set back, idle times count again, and those from the future do not."""
    histogram = filled([(60.0, 10**9)])
    for now_s in (1000.0, 1200.0):
        histogram.forget(now_s)
        histogram.add(120.0, now_s)
    histogram.forget(1200.0)
    assert (2, 2) == (histogram.total, histogram.counts[2])
