"""INFaaS's getVariant: a choice meets the request, or the closest variant is named."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.variants.instance_states import State
from carpool.variants.selection import Choice, Profile, Requirements, Selection
from tests.effort import scaled

SMALL = Profile("small", 0.70, 0.020, cost=1.0, load_s=0.5)
LARGE = Profile("large", 0.80, 0.200, cost=3.0, load_s=2.0)
QUICK = Profile("quick", 0.80, 0.015, cost=9.0, load_s=8.0)

shares = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 1.0])
profiles = st.lists(st.tuples(shares, shares, shares, shares), min_size=1, max_size=12).map(
    lambda rows: [Profile(f"v{n}", row[0], 0.1 + row[1], *row[2:]) for n, row in enumerate(rows)]
)
noted = st.lists(
    st.tuples(st.integers(0, 11), st.sampled_from("ab"), st.sampled_from(State), st.integers(0, 3)),
    max_size=25,
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
        selection.note(name, f"{name}-1", State.ACTIVE)
    return selection


def test_the_cheapest_active_variant_that_fits_is_taken() -> None:
    """Of several Active variants that fit, the cheapest is chosen."""
    selection = running("small", "large", "quick")
    assert Choice(SMALL, "small-1") == selection.choose(Requirements(0.3, 0.6))
    assert Choice(LARGE, "large-1") == selection.choose(Requirements(0.3, 0.75))
    assert Choice(QUICK, "quick-1") == selection.choose(Requirements(0.1, 0.75))


def test_active_variant_is_preferred_to_unloaded_one() -> None:
    """An Active variant that fits is chosen, even if one that is not loaded is cheaper."""
    assert Choice(QUICK, "quick-1") == running("quick").choose(Requirements())


def test_load_time_counts_for_unloaded_variants() -> None:
    """Load time counts: 0.52 s are within 0.6 s, and 2.2 s are not."""
    assert Choice(SMALL) == running().choose(Requirements(0.6))
    assert Choice(LARGE) == running().choose(Requirements(3.0, 0.75))
    assert Choice(None, closest=QUICK) == running().choose(Requirements(0.19, 0.75))


@pytest.mark.parametrize("state", [State.OVERLOADED, State.INTERFERED])
def test_overloaded_or_interfered_instance_is_not_selected(state: State) -> None:
    """An Overloaded or Interfered instance is not selected, nor is its variant loaded again."""
    selection = running("small")
    selection.note("small", "small-1", state)
    assert Choice(QUICK) == Selection([QUICK]).choose(Requirements())
    assert SMALL != selection.choose(Requirements()).fits
    selection.note("small", "small-2", State.ACTIVE, 5)
    assert Choice(SMALL, "small-2") == selection.choose(Requirements())


def test_the_least_loaded_instance_is_taken() -> None:
    """The least-loaded instance is chosen as loads change and instances leave."""
    selection = running()
    for name, load in (("a", 3), ("b", 1), ("c", 2)):
        selection.note("small", name, State.ACTIVE, load)
    assert "b" == selection.choose(Requirements()).instance
    selection.note("small", "b", State.ACTIVE, 4)
    assert "c" == selection.choose(Requirements()).instance
    selection.note("small", "c", State.INACTIVE)
    assert "a" == selection.choose(Requirements()).instance


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
    assert Choice(None, closest=closest) == running("small", "large", "quick").choose(wanted)


@settings(max_examples=scaled(300))
@given(profiles, noted, asked)
def test_selection_equals_exhaustive_search(
    known: list[Profile], changes: list[tuple[int, str, State, int]], wanted: Requirements
) -> None:
    """The choice equals that of an exhaustive search, and always meets the request."""
    selection = Selection(known)
    instances: dict[tuple[str, str], tuple[State, int]] = {}
    for number, instance, state, load in changes:
        if number < len(known):
            selection.note(known[number].name, instance, state, load)
            instances[known[number].name, instance] = (state, load)

    found = selection.choose(wanted)

    if found.fits is not None:
        assert found.fits.accuracy >= wanted.accuracy
        assert found.fits.cost <= wanted.cost
        assert found.fits.latency_s <= wanted.latency_s
    assert _searched(known, instances, wanted) == (found.fits, found.instance)
    assert (found.closest is None) == (found.fits is not None)


def _searched(
    known: list[Profile], instances: dict[tuple[str, str], tuple[State, int]], wanted: Requirements
) -> tuple[Profile | None, str | None]:
    def states(profile: Profile) -> list[State]:
        return [s for (v, _), (s, _) in instances.items() if v == profile.name]

    good = [p for p in known if p.accuracy >= wanted.accuracy and p.cost <= wanted.cost]
    active = [p for p in good if State.ACTIVE in states(p) and p.latency_s <= wanted.latency_s]
    if active:
        best = min(active, key=lambda p: (p.cost, p.latency_s, p.name))
        of_best = {i: load for (v, i), (s, load) in instances.items()
                   if v == best.name and s is State.ACTIVE}  # fmt: skip
        return best, min(of_best, key=lambda i: (of_best[i], i))
    cold = [p for p in good if set(states(p)) <= {State.INACTIVE} and p.start_s <= wanted.latency_s]
    return min(cold, key=lambda p: (p.start_s, p.cost, p.name), default=None), None
