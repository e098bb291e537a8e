"""INFaaS's getVariant: a choice meets the request, or the closest variant is named."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.variants.instance_states import State
from carpool.variants.selection import Profile, Requirements, Selection
from tests.effort import scaled

SMALL = Profile("small", 0.70, 0.020, cost=1.0, load_s=0.5)
LARGE = Profile("large", 0.80, 0.200, cost=3.0, load_s=2.0)
QUICK = Profile("quick", 0.80, 0.015, cost=9.0, load_s=8.0)

RUNNING = (State.ACTIVE, State.OVERLOADED, State.INTERFERED)

shares = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 1.0])
profiles = st.lists(st.tuples(shares, shares, shares, shares), min_size=1, max_size=12).map(
    lambda rows: [Profile(f"v{n}", row[0], 0.1 + row[1], *row[2:]) for n, row in enumerate(rows)]
)
noted = st.lists(
    st.tuples(st.integers(0, 11), st.lists(st.sampled_from(RUNNING), max_size=3)), max_size=25
)
asked = st.builds(
    Requirements,
    st.sampled_from([0.0, 0.3, 0.7, 1.2, math.inf]),
    shares,
    shares | st.just(math.inf),
)


def running(*names: str) -> Selection:
    """Return a selection of the three variants, of which ``names`` have an Active instance."""
    selection = Selection([SMALL, LARGE, QUICK])
    for name in names:
        selection.note(name, [State.ACTIVE])
    return selection


def test_the_cheapest_active_variant_that_fits_is_taken() -> None:
    """Of several Active variants that fit, the cheapest is chosen."""
    selection = running("small", "large", "quick")
    assert SMALL == selection.fits(Requirements(0.3, 0.6))
    assert LARGE == selection.fits(Requirements(0.3, 0.75))
    assert QUICK == selection.fits(Requirements(0.1, 0.75))


def test_active_variant_is_preferred_to_unloaded_one() -> None:
    """An Active variant that fits is chosen, even if one that is not loaded is cheaper."""
    assert QUICK == running("quick").fits(Requirements())


def test_load_time_counts_for_unloaded_variants() -> None:
    """Load time counts: 0.52 s are within 0.6 s, and 2.2 s are not."""
    assert SMALL == running().fits(Requirements(0.6))
    assert LARGE == running().fits(Requirements(3.0, 0.75))
    assert running().fits(Requirements(0.19, 0.75)) is None


@pytest.mark.parametrize("state", [State.OVERLOADED, State.INTERFERED])
def test_overloaded_or_interfered_instance_is_not_selected(state: State) -> None:
    """An Overloaded or Interfered instance is not selected, nor is its variant loaded again."""
    selection = running("small")
    selection.note("small", [state])
    assert LARGE == selection.fits(Requirements())
    selection.note("small", [state, State.ACTIVE])
    assert SMALL == selection.fits(Requirements())


@pytest.mark.parametrize(
    ("wanted", "closest"),
    [
        pytest.param(Requirements(0.014, 0.7), QUICK, id="a millisecond later"),
        pytest.param(Requirements(0.5, 0.81), LARGE, id="a hundredth less accurate"),
        pytest.param(Requirements(0.5, 0.75, 2.9), LARGE, id="a tenth dearer"),
        pytest.param(Requirements(0.001, 0.9), LARGE, id="nothing is near: the most accurate"),
        pytest.param(Requirements(0.001, 0.75, 0.1), QUICK, id="two do not fit: the quickest"),
    ],
)
def test_closest_variant_is_suggested_if_none_fits(wanted: Requirements, closest: Profile) -> None:
    """If nothing fits, the variant that needs the smallest change of the request is suggested."""
    selection = running("small", "large", "quick")
    assert selection.fits(wanted) is None
    assert closest == selection.closest(wanted)


@settings(max_examples=scaled(300))
@given(profiles, noted, asked)
def test_selection_equals_exhaustive_search(
    known: list[Profile], changes: list[tuple[int, list[State]]], wanted: Requirements
) -> None:
    """The choice equals that of an exhaustive search, and always meets the request."""
    selection = Selection(known)
    states: dict[str, list[State]] = {}
    for number, own in changes:
        if number < len(known):
            selection.note(known[number].name, own)
            states[known[number].name] = own

    found = selection.fits(wanted)

    if found is not None:
        assert found.accuracy >= wanted.accuracy
        assert found.cost <= wanted.cost
        assert found.latency_s <= wanted.latency_s
    assert _searched(known, states, wanted) == found


def _searched(
    known: list[Profile], states: dict[str, list[State]], wanted: Requirements
) -> Profile | None:
    good = [p for p in known if p.accuracy >= wanted.accuracy and p.cost <= wanted.cost]
    active = [p for p in good if State.ACTIVE in states.get(p.name, ())]
    quick = [p for p in active if p.latency_s <= wanted.latency_s]
    if quick:
        return min(quick, key=lambda p: (p.cost, p.latency_s, p.name))
    cold = [p for p in good if not states.get(p.name) and p.start_s <= wanted.latency_s]
    return min(cold, key=lambda p: (p.start_s, p.cost, p.name), default=None)
