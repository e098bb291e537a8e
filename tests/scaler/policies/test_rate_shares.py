"""Division of a rate among instances, and their release."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.latency import Resources
from carpool.scaling import CORE_WEIGHT, Size
from scaler.policies.common import rate_shares

POOLS = itertools.count()


def held(low: float, high: float, batch: int = 4, units: float = 1.0) -> Size:
    """Return a size with this range of rates that is distinct from all others."""
    return Size(
        batch,
        units / CORE_WEIGHT,
        0.0,
        pool=next(POOLS),
        resources=Resources(units / CORE_WEIGHT),
        exec_s=0.05,
        min_rps=low,
        rate_rps=high,
    )


# The paper's two instances, one of each.
LARGE, SMALL = held(28, 80, units=2.5), held(20, 40)
BOTH = Counter([LARGE, SMALL])


def test_case_i_gives_every_instance_its_maximum() -> None:
    """At 130 requests/s the two instances get 80 and 40, and 10 remain."""
    assert {LARGE: 80, SMALL: 40} == rate_shares.rates(130, BOTH)
    assert 120 == rate_shares.rate_high(BOTH)


@pytest.mark.parametrize(("rate", "large", "small"), [(110, 72.78, 37.22), (100, 65.56, 34.44)])
def test_case_ii_gives_equal_parts_of_rate_ranges(rate: float, large: float, small: float) -> None:
    """Shares at 110 are the paper's numbers, and those at 100 follow its text."""
    assert pytest.approx({LARGE: large, SMALL: small}, abs=0.005) == rate_shares.rates(rate, BOTH)


def test_theta_is_weighted_towards_maximum() -> None:
    """Theta is 0.8 of 120 plus 0.2 of 48; reversed, as in the paper's text, it would be 62.4."""
    assert pytest.approx(105.6) == rate_shares.theta(BOTH, 0.8)
    assert pytest.approx(62.4) == rate_shares.theta(BOTH, 0.2)


def test_case_iii_releases_until_case_ii_holds() -> None:
    """At 100 no instance is released, at 75 the small one, at 35 the large one."""

    def needed(rate: float) -> Counter[Size]:
        return rate_shares.release(BOTH, lambda _: rate, 0.8)

    assert needed(100) == BOTH
    assert needed(75) == Counter([LARGE])
    assert needed(35) == Counter([SMALL])
    assert needed(0) == Counter()


def test_the_least_efficient_goes_first() -> None:
    """The instance with the lowest rate per resource unit is released first."""
    good, bad = held(0, 10, units=1.0), held(0, 10, units=5.0)
    left = rate_shares.release(Counter({good: 2, bad: 2}), lambda _: 19.0, 0.8)
    assert Counter({good: 2}) == left


def test_instance_bounds_hold_at_any_rate() -> None:
    """The number of instances stays within the bounds at any rate."""
    assert 1 == rate_shares.release(BOTH, lambda _: 0.0, 0.8, least=1).total()
    assert Counter([LARGE]) == rate_shares.release(BOTH, lambda _: 500.0, 0.8, most=1)


WINDOWS = st.tuples(st.floats(0, 50), st.floats(0.1, 50)).map(lambda w: held(w[0], w[0] + w[1]))


@given(sizes=st.lists(WINDOWS, min_size=1, max_size=5), rate=st.floats(0, 500))
def test_shares_add_up_to_rate(sizes: list[Size], rate: float) -> None:
    """The shares add up to the rate, and no instance gets more than its maximum."""
    instances = Counter(sizes)
    shares = rate_shares.rates(rate, instances)
    total = sum(shares[size] * count for size, count in instances.items())
    assert pytest.approx(min(rate, rate_shares.rate_high(instances))) == total
    assert all(share <= size.rate_rps * (1 + 1e-9) for size, share in shares.items())


@given(sizes=st.lists(WINDOWS, min_size=1, max_size=5), rate=st.floats(0.001, 500))
def test_release_leaves_sufficient_capacity(sizes: list[Size], rate: float) -> None:
    """The remaining instances suffice for the needed rate if all of them did."""
    instances = Counter(sizes)
    left = rate_shares.release(instances, lambda _: rate, 0.8)
    assert left <= instances
    if rate_shares.rate_high(instances) >= rate:
        assert rate_shares.rate_high(left) >= rate * (1 - 1e-9)
