"""Groups of neighbours: how long their batches stay open, and how they are divided."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.policies.harmonybatch.grouping import best_cuts, two_stages
from scaler.policies.harmonybatch.poisson_windows import expected_window
from scaler.policies.harmonybatch.pooling import pooled
from tests.effort import scaled

COUNTS = st.integers(1, 7)


@settings(max_examples=scaled(60))
@given(count=COUNTS, data=st.data())
def test_all_groups_at_once_are_each_group_alone(count: int, data: st.DataObject) -> None:
    """For any allowance, a group's pooled objective less it is its exact mean window."""
    rates = [10 ** data.draw(st.floats(-3, 4)) for _ in range(count)]
    slos = sorted(data.draw(st.floats(0.1, 2)) for _ in range(count))
    totals, opens, _, _ = pooled(np.array(rates), np.array(slos))
    allowance_s = data.draw(st.floats(0, slos[0]))
    for first, last in itertools.combinations_with_replacement(range(count), 2):
        mine = slice(first, last + 1)
        window_s = expected_window(rates[mine], [slo - allowance_s for slo in slos[mine]])
        assert pytest.approx(sum(rates[mine]), rel=1e-6) == totals[first, last]
        assert pytest.approx(window_s, rel=1e-6, abs=1e-7) == opens[first, last] - allowance_s


@settings(max_examples=scaled(30))
@given(count=COUNTS, data=st.data())
def test_the_spread_of_all_groups_at_once(count: int, data: st.DataObject) -> None:
    """It is that of how long batches without a largest size stay open, summed up finely."""
    rates = np.array([10 ** data.draw(st.floats(-4, 3)) for _ in range(count)])
    slos = np.sort([data.draw(st.floats(0.1, 2)) for _ in range(count)])
    spreads = pooled(rates, slos).spread_s
    for first, last in itertools.combinations_with_replacement(range(count), 2):
        mine, own = slos[first : last + 1] - slos[first], rates[first : last + 1]
        ends = np.linspace(0, mine[-1], 4001)
        at = (ends[1:] + ends[:-1]) / 2
        over = np.maximum(at[:, None] - mine, 0) @ own
        still_open = np.exp(-over) * ((at[:, None] < mine) @ own) / own.sum()
        step_s = mine[-1] / 4000
        mean, square = still_open.sum() * step_s, 2 * (at * still_open).sum() * step_s
        expected = math.sqrt(max(square - mean**2, 0))
        assert pytest.approx(expected, rel=2e-3, abs=2e-3) == spreads[first, last]


@settings(max_examples=scaled(60))
@given(count=COUNTS, seed=st.integers(0, 10**6))
def test_the_best_cuts_are_the_cheapest_of_all(count: int, seed: int) -> None:
    """Of every division of up to seven applications, but for the little that a group must save."""
    draw = np.random.default_rng(seed)
    costs = draw.uniform(1, 2, (count, count))
    each = draw.uniform(0.1, 10, count)
    rates = np.array([[each[i : j + 1].sum() for j in range(count)] for i in range(count)])
    rates = np.where(rates > 0, rates, 1.0)

    def money(cuts: list[tuple[int, int]]) -> float:
        return float(sum(costs[cut] * rates[cut] for cut in cuts))

    found = best_cuts(rates, costs)
    assert [0, *(last + 1 for _, last in found[:-1])] == [first for first, _ in found]
    assert count - 1 == found[-1][1]
    every = []
    for marks in itertools.product((False, True), repeat=count - 1):
        ends = [place for place, mark in enumerate(marks) if mark] + [count - 1]
        every.append([(b + 1, e) for b, e in itertools.pairwise([-1, *ends])])
    alone = money([(place, place) for place in range(count)])
    assert money(found) <= min(map(money, every)) + 2e-4 * count * alone


def test_of_equals_the_larger_group_wins() -> None:
    """Where nothing is saved by a group more, there is none."""
    costs = np.ones((4, 4))
    rates = np.array([[max(j - i + 1, 1) for j in range(4)] for i in range(4)], dtype=float)
    assert [(0, 3)] == best_cuts(rates, costs)


def test_what_cannot_be_in_time_together_is_apart() -> None:
    """An infinite cost is no group."""
    costs = np.array([[1.0, np.inf], [np.inf, 3.0]])
    assert [(0, 0), (1, 1)] == best_cuts(np.array([[1.0, 2.0], [1.0, 1.0]]), costs)


class Tariff:
    """Six applications at 5 requests a second: alone on cores at 4, together as ``merged`` says."""

    def __init__(self, merged: dict[tuple[int, int], float], gpu: set[tuple[int, int]]) -> None:
        self.rates = np.array([[5.0 * max(j - i + 1, 1) for j in range(6)] for i in range(6)])
        self.costs = np.full((6, 6), 4.0)
        self.on_gpu = np.zeros((6, 6), dtype=np.bool_)
        for cut, cost in merged.items():
            self.costs[cut] = cost
        for cut in gpu:
            self.on_gpu[cut] = True

    def cuts(self, knee_rps: float) -> list[tuple[int, int]]:
        return two_stages(self.rates, self.costs, self.on_gpu, lambda _: knee_rps)


def test_stage_one_merges_beyond_the_knee_and_goes_on_behind() -> None:
    """Three at a time exceed 14 requests a second; the merged pay less, so both threes merge."""
    tariff = Tariff({(0, 2): 3.0, (3, 5): 3.5}, {(0, 2), (3, 5)})
    assert [(0, 2), (3, 5)] == tariff.cuts(14.0)


def test_stage_one_takes_no_dearer_group() -> None:
    """Dearer than apart: all stay apart; the scan goes on and merges what pays."""
    tariff = Tariff({(0, 2): 4.5}, {(0, 2)})
    assert [(place, place) for place in range(6)] == tariff.cuts(14.0)


def test_stage_one_never_merges_below_the_knee() -> None:
    """Thirty in all: with a knee of 40 nothing is tried, though it would pay."""
    tariff = Tariff({(0, 5): 1.0}, {(0, 5)})
    assert 6 == len(tariff.cuts(40.0))


def test_stage_two_merges_neighbours_of_a_gpu() -> None:
    """What is on a GPU takes in its neighbour for as long as it pays."""
    tariff = Tariff({(3, 4): 3.9, (3, 5): 3.8, (2, 3): 5.0}, {(3, 3), (3, 4), (3, 5)})
    assert [(0, 0), (1, 1), (2, 2), (3, 5)] == tariff.cuts(1e9)
