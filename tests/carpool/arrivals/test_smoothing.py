"""Rates averaged over time."""

from __future__ import annotations

import math

import pytest

from carpool.arrivals.smoothing import SmoothRates
from carpool.latency.linear import Linear
from carpool.scaling import Application, FunctionLoad


def load(rate_rps: float) -> FunctionLoad:
    """Return the load of a function with one application."""
    apps = (Application("all", 1.0, rate_rps),)
    return FunctionLoad("f", Linear(0.1, 0.01), 1.0, 0.99, 8, apps)


def rates(measured: list[float], over_s: float = 60.0, step_s: float = 10.0) -> list[float]:
    """Return the smoothed rates that a policy sees for successive measured rates."""
    smooth = SmoothRates(over_s)
    return [smooth.smoothed(load(rate), step_s * n)[0].rate_rps for n, rate in enumerate(measured)]


def test_earlier_rates_decay_exponentially() -> None:
    """After ``over_s`` seconds an earlier rate has a weight of 1/e, about a third."""
    seen = rates([100.0] * 60 + [200.0] * 6)
    assert 100.0 == seen[0]
    assert pytest.approx(200 - 100 * math.exp(-1), rel=1e-4) == seen[-1]


def test_short_first_measurement_has_no_weight() -> None:
    """The first, short measurement of a starting load has no weight against the later ones."""
    seen = rates([0.2] + [20.0] * 24, step_s=0.5)
    assert 0.2 == seen[0]
    assert {20.0} == set(seen[1:])
    ramp = rates([0.0, 10.0, 20.0, 30.0], step_s=1.0)
    assert pytest.approx([0.0, 10.0, 15.0, 20.0], rel=0.02) == ramp


def test_smoothed_rate_settles_at_constant_rate() -> None:
    """A smoothed rate within 1 % of the measured one becomes equal to it."""
    assert 200.0 == rates([100.0] + [200.0] * 40)[-1]


def test_smoothed_rate_settles_at_0_after_load_ends() -> None:
    """The smoothed rate becomes 0 some time after the load has ended."""
    seen = rates([100.0] * 20 + [0.0] * 60)
    assert 0 < seen[60]
    assert 0.0 == seen[-1]


def test_sparse_load_keeps_mean_rate() -> None:
    """A load with a request in only one of twenty measurements keeps its mean rate."""
    seen = rates(([2.0] + [0.0] * 19) * 20, step_s=1.0)
    assert pytest.approx(0.1, rel=0.3) == sum(seen[-20:]) / 20


@pytest.mark.parametrize("over_s", [1e17, 1e300])
def test_very_long_span_gives_plain_mean(over_s: float) -> None:
    """A very long span gives the plain mean of what was measured after the first moment."""
    assert pytest.approx([0.0, 10.0, 15.0, 20.0]) == rates([0.0, 10.0, 20.0, 30.0], over_s)
