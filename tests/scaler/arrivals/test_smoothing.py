"""Rates averaged over time."""

from __future__ import annotations

import math

import pytest

from carpool.latency.linear import Linear
from carpool.scaling import Application, FunctionLoad
from scaler.arrivals.smoothing import SmoothRates


def load(rate_rps: float) -> FunctionLoad:
    """A function with one application."""
    apps = (Application("all", 1.0, rate_rps),)
    return FunctionLoad("f", Linear(0.1, 0.01), 1.0, 0.99, 8, apps)


def rates(measured: list[float], over_s: float = 60.0, step_s: float = 10.0) -> list[float]:
    """What a policy sees of rates measured one after the other."""
    smooth = SmoothRates(over_s)
    return [smooth.smoothed(load(rate), step_s * n)[0].rate_rps for n, rate in enumerate(measured)]


def test_the_past_fades() -> None:
    """What was before for long counts for a third after the span."""
    seen = rates([100.0] * 60 + [200.0] * 6)
    assert 100.0 == seen[0]
    assert pytest.approx(200 - 100 * math.exp(-1), rel=1e-4) == seen[-1]


def test_a_first_moment_is_no_past() -> None:
    """One request of a load that begins says little of it: what was measured for longer counts."""
    seen = rates([0.2] + [20.0] * 24, step_s=0.5)
    assert 0.2 == seen[0]
    assert {20.0} == set(seen[1:])
    ramp = rates([0.0, 10.0, 20.0, 30.0], step_s=1.0)
    assert pytest.approx([0.0, 10.0, 15.0, 20.0], rel=0.02) == ramp


def test_a_constant_rate_comes_to_rest() -> None:
    """Once it is within a hundredth it is the measured one."""
    assert 200.0 == rates([100.0] + [200.0] * 40)[-1]


def test_silence_comes_to_rest_too() -> None:
    """Nothing is a hundredth of nothing; after a while nothing is left."""
    seen = rates([100.0] * 20 + [0.0] * 60)
    assert 0 < seen[60]
    assert 0.0 == seen[-1]


def test_a_low_rate_is_no_silence() -> None:
    """One request in twenty measurements is seen as such."""
    seen = rates(([2.0] + [0.0] * 19) * 20, step_s=1.0)
    assert pytest.approx(0.1, rel=0.3) == sum(seen[-20:]) / 20


@pytest.mark.parametrize("over_s", [1e17, 1e300])
def test_over_very_long_all_that_was_measured_counts_the_same(over_s: float) -> None:
    """However long: a plain mean of what was measured after the first moment."""
    assert pytest.approx([0.0, 10.0, 15.0, 20.0]) == rates([0.0, 10.0, 20.0, 30.0], over_s)
