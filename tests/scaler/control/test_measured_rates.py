"""Rates from sidecar counts: exact if even, quick to rise, slow to fall, NaN if unknown."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.control.measured_rates import Rates


def counted(rates_rps: list[float], period_s: float = 0.5, window_s: float = 10.0) -> Rates:
    """Return the rates after a front's counts in successive periods from time 0."""
    rates = Rates(window_s)
    for number, rate in enumerate(rates_rps, start=1):
        rates.note({"web": round(rate * period_s)}, period_s, number * period_s)
    return rates


def test_even_load_gives_exact_rate() -> None:
    """Even counts give the exact rate from the first period on."""
    for periods in (1, 3, 100):
        found = counted([40.0] * periods).at(periods * 0.5)
        assert found["web"] == pytest.approx(40.0)


def test_rise_is_measured_in_first_period() -> None:
    """The first period after a significant rise has the new rate instead of the window's mean."""
    found = counted([10.0] * 40 + [200.0]).at(20.5)
    assert found["web"] == pytest.approx(200.0)


def test_first_period_has_minimum_length() -> None:
    """The first period of a front counts as at least half a second."""
    rates = Rates()
    rates.note({"web": 3}, 0.01, 0.01)
    assert rates.at(0.01)["web"] <= 6.0


def test_random_variation_is_no_rise() -> None:
    """Twice the usual count of a few requests is not taken for a rise."""
    found = counted([8.0] * 40 + [16.0]).at(20.5)
    assert found["web"] < 9.0


def test_rate_falls_as_window_moves() -> None:
    """The rate falls as the window moves."""
    found = counted([100.0] * 40 + [0.0] * 10).at(25.0)
    assert found["web"] == pytest.approx(50.0)


def test_several_fronts_add_up() -> None:
    """The rates of several fronts add up."""
    rates = Rates()
    for now_s in (1.0, 2.0, 3.0):
        for _ in range(3):
            rates.note({"web": 10, "*": 1}, 1.0, now_s)
    assert {"web": pytest.approx(30.0), "*": pytest.approx(3.0)} == rates.at(3.0)


def test_rate_is_nan_without_recent_reports() -> None:
    """Without recent reports the rate is NaN, and the guard keeps the plan."""
    rates = counted([40.0] * 20)
    assert math.isnan(rates.at(100.0)["web"])
    assert {} == Rates().at(5.0)


@given(st.lists(st.tuples(st.integers(0, 1000), st.floats(0.01, 30)), min_size=1, max_size=40))
def test_rates_are_finite_and_not_negative_for_any_reports(
    reports: list[tuple[int, float]],
) -> None:
    """Reports of any order and length give a finite rate of at least 0."""
    rates, now_s = Rates(), 0.0
    for count, period_s in reports:
        now_s += period_s / 2  # periods of several fronts overlap
        rates.note({"*": count}, period_s, now_s)
        assert 0 <= rates.at(now_s)["*"] < math.inf
