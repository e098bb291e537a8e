"""Groups of neighbouring applications: how long their batches stay open, and their division."""

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
def test_pooled_windows_agree_with_single_groups(count: int, data: st.DataObject) -> None:
    """A group's pooled objective less any allowance is its exact mean window."""
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
def test_pooled_spread_agrees_with_integration(count: int, data: st.DataObject) -> None:
    """The spread is that of the open time of unlimited batches, as integrated numerically."""
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
def test_best_cuts_are_cheapest_division(count: int, seed: int) -> None:
    """No division of up to seven applications is cheaper by more than a group must save."""
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


def test_larger_group_wins_at_equal_cost() -> None:
    """There is no further group if it saves nothing."""
    costs = np.ones((4, 4))
    rates = np.array([[max(j - i + 1, 1) for j in range(4)] for i in range(4)], dtype=float)
    assert [(0, 3)] == best_cuts(rates, costs)


def test_groups_of_infinite_cost_are_split() -> None:
    """Applications whose group has an infinite cost are kept apart."""
    costs = np.array([[1.0, np.inf], [np.inf, 3.0]])
    assert [(0, 0), (1, 1)] == best_cuts(np.array([[1.0, 2.0], [1.0, 1.0]]), costs)


class Tariff:
    """Six applications of 5 requests/s each, at a cost of 4 alone and of ``merged`` in groups."""

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


def test_stage_one_merges_groups_beyond_knee() -> None:
    """Groups of three exceed the knee of 14 requests/s and are cheaper, so both merge."""
    tariff = Tariff({(0, 2): 3.0, (3, 5): 3.5}, {(0, 2), (3, 5)})
    assert [(0, 2), (3, 5)] == tariff.cuts(14.0)


def test_stage_one_rejects_more_expensive_group() -> None:
    """Applications whose group is more expensive stay apart."""
    tariff = Tariff({(0, 2): 4.5}, {(0, 2)})
    assert [(place, place) for place in range(6)] == tariff.cuts(14.0)


def test_stage_one_never_merges_below_the_knee() -> None:
    """With a total rate below the knee nothing merges, even if it were cheaper."""
    tariff = Tariff({(0, 5): 1.0}, {(0, 5)})
    assert 6 == len(tariff.cuts(40.0))


def test_stage_two_merges_neighbours_of_gpu_group() -> None:
    """A group on a GPU takes in its neighbour as long as the cost falls."""
    tariff = Tariff({(3, 4): 3.9, (3, 5): 3.8, (2, 3): 5.0}, {(3, 3), (3, 4), (3, 5)})
    assert [(0, 0), (1, 1), (2, 2), (3, 5)] == tariff.cuts(1e9)
