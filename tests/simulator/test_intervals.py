"""Ratios of sums, and how far they may be off."""

from __future__ import annotations

import math
import random
from statistics import stdev

import pytest

from simulator.intervals import Estimate, half_interval, ratio


def test_a_ratio_by_hand() -> None:
    """Differences from 2 times the lower numbers are -1, 1, 0: their deviation is 1."""
    found = ratio([1.0, 5.0, 6.0], [1.0, 2.0, 3.0])
    assert 2.0 == found.value
    assert found.half == pytest.approx(4.30 * 1 / math.sqrt(3) / 2, rel=1e-3)


def test_what_is_in_proportion_is_certain() -> None:
    """However different the parts are."""
    found = ratio([2.0, 200.0, 20.0], [1.0, 100.0, 10.0])
    assert found.value == pytest.approx(2.0)
    assert found.half == pytest.approx(0.0, abs=1e-9)


def test_one_observation_has_no_interval_and_nothing_no_ratio() -> None:
    """Which is not a number, not a guess."""
    assert 3.0 == ratio([6.0], [2.0]).value
    assert math.isnan(ratio([6.0], [2.0]).half)
    assert math.isnan(ratio([1.0, 1.0], [0.0, 0.0]).value)
    assert math.isnan(half_interval([1.0, math.inf]))


def test_the_lower_end_is_no_less_than_nothing() -> None:
    """Costs and shares are not negative."""
    assert 0.0 == Estimate(1.0, 3.0).low
    assert 4.0 == Estimate(1.0, 3.0).high
    assert math.isnan(Estimate(1.0, math.nan).low)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Of eight parts of unequal size, in 95 of 100 trials or so; the seed is fixed."""
    draw = random.Random(1)
    inside = 0
    for _ in range(1000):
        below = [draw.uniform(0.5, 1.5) for _ in range(8)]
        above = [3.0 * size + draw.gauss(0.0, 0.5) for size in below]
        found = ratio(above, below)
        inside += found.low <= 3.0 <= found.high
    assert 920 <= inside <= 980


def test_many_observations_have_a_narrow_interval_and_no_narrower() -> None:
    """Student's t of 11, 30 and 120 degrees of freedom, by the tables."""
    for freedom, expected in ((11, 2.201), (30, 2.042), (120, 1.980)):
        values = [float(at % 2) for at in range(freedom + 1)]
        found = half_interval(values) / stdev(values) * math.sqrt(len(values))
        assert found == pytest.approx(expected, abs=0.003)
