"""Ratios of sums and their confidence intervals."""

from __future__ import annotations

import math
import random
from statistics import stdev

import pytest

from simulator.confidence_intervals import Estimate, half_interval, ratio


def test_ratio_and_interval_match_manual_calculation() -> None:
    """A ratio and its interval match a manual calculation with a deviation of 1."""
    found = ratio([1.0, 5.0, 6.0], [1.0, 2.0, 3.0])
    assert 2.0 == found.value
    assert found.half == pytest.approx(4.30 * 1 / math.sqrt(3) / 2, rel=1e-3)


def test_proportional_parts_have_zero_interval() -> None:
    """Parts in exact proportion have an interval of zero, however different their sizes."""
    found = ratio([2.0, 200.0, 20.0], [1.0, 100.0, 10.0])
    assert found.value == pytest.approx(2.0)
    assert found.half == pytest.approx(0.0, abs=1e-9)


def test_single_observation_and_ratio_to_zero_are_nan() -> None:
    """One observation has a NaN interval, and a ratio to zero is NaN."""
    assert 3.0 == ratio([6.0], [2.0]).value
    assert math.isnan(ratio([6.0], [2.0]).half)
    assert math.isnan(ratio([1.0, 1.0], [0.0, 0.0]).value)
    assert math.isnan(half_interval([1.0, math.inf]))


def test_lower_end_is_not_negative() -> None:
    """The lower end is at least 0, as costs and shares are not negative."""
    assert 0.0 == Estimate(1.0, 3.0).low
    assert 4.0 == Estimate(1.0, 3.0).high
    assert math.isnan(Estimate(1.0, math.nan).low)


def test_interval_covers_true_ratio_at_nominal_rate() -> None:
    """The interval of eight unequal parts holds the true ratio in about 95 % of the trials."""
    draw = random.Random(1)
    inside = 0
    for _ in range(1000):
        below = [draw.uniform(0.5, 1.5) for _ in range(8)]
        above = [3.0 * size + draw.gauss(0.0, 0.5) for size in below]
        found = ratio(above, below)
        inside += found.low <= 3.0 <= found.high
    assert 920 <= inside <= 980


def test_interval_uses_students_t() -> None:
    """The interval uses Student's t for 11, 30 and 120 degrees of freedom, as in the tables."""
    for freedom, expected in ((11, 2.201), (30, 2.042), (120, 1.980)):
        values = [float(at % 2) for at in range(freedom + 1)]
        found = half_interval(values) / stdev(values) * math.sqrt(len(values))
        assert found == pytest.approx(expected, abs=0.003)
