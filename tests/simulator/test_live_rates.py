"""Rates in simulated time: counted over a window, or as a live scaler follows them."""

from __future__ import annotations

import numpy as np
import pytest

from carpool.latency.linear import Linear
from simulator.rates import LiveRates, Rates
from tests.simulator.load import At, Scripted, function, plan, run, scenario


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


def test_a_jump_is_planned_for_between_two_rounds_and_followed() -> None:
    """Rounds are in their turn before it; from then on there is one each tenth of a second."""
    calm, jump = np.arange(0.01, 10.2, 0.05), np.arange(10.2, 20.0, 0.005)
    process = At((*calm.tolist(), *jump.tolist()))
    policy = Scripted(lambda _, view: view.plan or plan(view.name, 1, 4))
    found = run(
        scenario(function(process, Linear(0.001, 0.0)), horizon_s=20.0),
        policy,
        interval_s=0.5,
        window_s=10.0,
        live_rates=True,
    )
    times = [snapshot.now_s for snapshot in policy.seen]
    assert len(process.times) == found["done"]
    calm_s = np.diff([at_s for at_s in times if 5.0 < at_s < 10.2])
    assert [0.5] * len(calm_s) == pytest.approx(calm_s.tolist())
    noticed_s, *followed = [at_s for at_s in times if 10.2 < at_s][1:10]
    assert noticed_s < 10.5
    assert [noticed_s + 0.1 * number for number in range(1, 9)] == pytest.approx(followed)
    assert 0.5 == pytest.approx(times[-2] - times[-3])
