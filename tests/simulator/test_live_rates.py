"""Rates in simulated time: counted over a window, or as a live scaler follows them."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.rates import LiveRates, Rates


def step(rates: Rates, at_s: float) -> list[float]:
    """What is measured by ``at_s`` of a rate that jumps from 20 to 200 after a minute."""
    for number in range(int(at_s * 2) + 1):
        start_s, end_s = number / 2, number / 2 + 0.5
        rate_rps = 20 if start_s < 60 else 200
        times = np.arange(start_s, end_s, 1 / rate_rps)
        rates.note(start_s, end_s, [times, np.empty(0)])
    return rates.at(at_s)


@pytest.mark.parametrize("measure", [Rates, LiveRates])
def test_before_anything_is_measured_the_first_hold(measure: type[Rates]) -> None:
    """A scaler that has just begun goes by what it was told."""
    assert [7.0, 3.0] == measure([7.0, 3.0], 10.0).at(0.0)


@pytest.mark.parametrize("measure", [Rates, LiveRates])
def test_what_is_even_is_measured_exactly(measure: type[Rates]) -> None:
    """The two of them agree on a load that does not change."""
    assert [20.0, 0.0] == pytest.approx(step(measure([1.0, 1.0], 10.0), 50.0), abs=0.5)


def test_only_a_live_scalers_follow_a_jump() -> None:
    """A second after it they have nearly all of it; the window's mean has a tenth."""
    assert 30 < step(Rates([1.0, 1.0], 10.0), 61.0)[0] < 45
    assert 180 < step(LiveRates([1.0, 1.0], 10.0), 61.0)[0] < 220
