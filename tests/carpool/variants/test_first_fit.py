"""The first of many things within two limits, however often they change."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.variants.first_fit import FirstFit
from tests.effort import scaled

measure = st.integers(0, 6).map(float)
things = st.lists(st.tuples(measure, measure), max_size=20)


@settings(max_examples=scaled(300))
@given(things, st.lists(st.tuples(st.integers(0, 19), st.booleans())), measure, measure)
def test_it_finds_what_looking_at_all_would(
    measures: list[tuple[float, float]], changes: list[tuple[int, bool]], most: float, second: float
) -> None:
    """Whatever was put in and removed, the first that is there and within both limits is found."""
    fit, there = FirstFit(measures), set(range(len(measures)))
    for number, present in changes:
        if number < len(measures):
            (fit.put if present else fit.remove)(number)
            (there.add if present else there.discard)(number)
    within = [n for n in sorted(there) if measures[n][0] <= most and measures[n][1] <= second]
    assert (within[0] if within else None) == fit.first(most, second)


def test_it_may_begin_empty() -> None:
    """Things can be known and not be there."""
    fit = FirstFit([(1.0, 1.0), (2.0, 2.0)], present=())
    assert fit.first(9.0, 9.0) is None
    fit.put(1)
    assert 1 == fit.first(9.0, 9.0)
