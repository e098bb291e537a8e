"""The first of many items within two limits, while items are added and removed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.variants.first_fit import FirstFit
from tests.effort import scaled

measure = st.integers(0, 6).map(float)
things = st.lists(st.tuples(measure, measure), max_size=20)


@settings(max_examples=scaled(300))
@given(things, st.lists(st.tuples(st.integers(0, 19), st.booleans())), measure, measure)
def test_first_fit_equals_linear_search(
    measures: list[tuple[float, float]], changes: list[tuple[int, bool]], most: float, second: float
) -> None:
    """After any changes, the first present item within both limits is found."""
    fit, there = FirstFit(measures), set(range(len(measures)))
    for number, present in changes:
        if number < len(measures):
            (fit.put if present else fit.remove)(number)
            (there.add if present else there.discard)(number)
    within = [n for n in sorted(there) if measures[n][0] <= most and measures[n][1] <= second]
    assert (within[0] if within else None) == fit.first(most, second)


def test_known_items_may_be_absent_at_first() -> None:
    """Known items may be absent at first."""
    fit = FirstFit([(1.0, 1.0), (2.0, 2.0)], present=())
    assert fit.first(9.0, 9.0) is None
    fit.put(1)
    assert 1 == fit.first(9.0, 9.0)
