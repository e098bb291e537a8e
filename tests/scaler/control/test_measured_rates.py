"""Rates from what sidecars counted: exact where even, quick to rise, slow to fall, honest."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.control.measured_rates import Rates


def counted(rates_rps: list[float], period_s: float = 0.5, window_s: float = 10.0) -> Rates:
    """A front's counts, one period after the other, from time 0 on."""
    rates = Rates(window_s)
    for number, rate in enumerate(rates_rps, start=1):
        rates.note({"web": round(rate * period_s)}, period_s, number * period_s)
    return rates


def test_an_even_load_has_its_rate() -> None:
    """So many in every period are that many a second, from the first period on."""
    for periods in (1, 3, 100):
        found = counted([40.0] * periods).at(periods * 0.5)
        assert found["web"] == pytest.approx(40.0)


def test_a_jump_shows_at_once() -> None:
    """One period after a jump beyond doubt, the rate is there; the window's mean is not."""
    found = counted([10.0] * 40 + [200.0]).at(20.5)
    assert found["web"] == pytest.approx(200.0)


def test_three_requests_at_once_are_no_rate() -> None:
    """The first moments of a front count as half a second."""
    rates = Rates()
    rates.note({"web": 3}, 0.01, 0.01)
    assert rates.at(0.01)["web"] <= 6.0


def test_chance_is_no_jump() -> None:
    """Twice the usual count of a few requests is what happens by chance."""
    found = counted([8.0] * 40 + [16.0]).at(20.5)
    assert found["web"] < 9.0


def test_a_fall_fills_the_window() -> None:
    """The rate comes down as fast as the window passes."""
    found = counted([100.0] * 40 + [0.0] * 10).at(25.0)
    assert found["web"] == pytest.approx(50.0)


def test_several_fronts_add_up() -> None:
    """Each counts its own."""
    rates = Rates()
    for now_s in (1.0, 2.0, 3.0):
        for _ in range(3):
            rates.note({"web": 10, "*": 1}, 1.0, now_s)
    assert {"web": pytest.approx(30.0), "*": pytest.approx(3.0)} == rates.at(3.0)


def test_silence_is_not_a_low_rate() -> None:
    """Without reports the rate is no number, and the guard keeps the plan."""
    rates = counted([40.0] * 20)
    assert math.isnan(rates.at(100.0)["web"])
    assert {} == Rates().at(5.0)


@given(st.lists(st.tuples(st.integers(0, 1000), st.floats(0.01, 30)), min_size=1, max_size=40))
def test_rates_are_rates_whatever_is_reported(reports: list[tuple[int, float]]) -> None:
    """No order or length of periods gives anything but a finite rate of at least 0."""
    rates, now_s = Rates(), 0.0
    for count, period_s in reports:
        now_s += period_s / 2  # periods of several fronts overlap
        rates.note({"*": count}, period_s, now_s)
        assert 0 <= rates.at(now_s)["*"] < math.inf
