"""The lower bound on cost, checked by hand, by exhaustive search and against simulations."""

from __future__ import annotations

import math
import random
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pytest

from simulator.matrix.bound import division_cost, lower_bound
from simulator.matrix.cells import Cell, catalogue
from simulator.matrix.rows import Rows
from simulator.matrix.runs import Runs
from tests.effort import scaled

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

COSTS = np.array([5.0, 6.0, 7.0])


@pytest.mark.parametrize(
    ("times", "cost"),
    [
        ([], 0.0),
        ([0.0], 5.0),
        ([0.0, 0.9], 6.0),
        ([0.0, 1.1], 10.0),
        ([0.0, 0.5, 1.0], 7.0),
        ([0.0, 0.1, 0.2, 0.3], 12.0),  # two and two, or three and one
        ([0.0, 0.9, 1.8], 11.0),
    ],
)
def test_bound_matches_manual_calculation(times: list[float], cost: float) -> None:
    """The cost of batches of up to three within a second matches a manual calculation."""
    assert division_cost(np.array(times), COSTS, 1.0) == pytest.approx(cost)


def test_bound_reports_its_progress() -> None:
    """Progress is reported during long computations, and what it raises stops them."""
    reported: list[float] = []

    def stop(done: float) -> None:
        reported.append(done)
        if done >= 0.5:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        division_cost(np.arange(40_000.0), COSTS, 0.0, stop)
    assert [0.0, 0.25, 0.5] == reported


def test_requests_that_together_exceed_objective_are_served_alone() -> None:
    """If two requests take longer than the objective, each is served alone."""
    assert division_cost(np.array([0.0, 0.0, 1.0]), COSTS[:1], -math.inf) == 15.0


def partitions(items: Sequence[int], most: int) -> Iterator[list[tuple[int, ...]]]:
    """Yield all divisions of ``items`` into groups, adjacent or not."""
    if not items:
        yield []
        return
    first, *rest = items
    for size in range(min(most, len(items))):
        for others in combinations(rest, size):
            left = [item for item in rest if item not in others]
            for more in partitions(left, most):
                yield [(first, *others), *more]


def test_no_division_into_batches_is_cheaper_than_bound() -> None:
    """No division into batches is cheaper, overlapping ones included, at any prices."""
    draw = random.Random(3)
    for _ in range(scaled(100)):
        times = np.sort([draw.uniform(0, 3) for _ in range(draw.randint(1, 7))])
        costs = np.sort([draw.uniform(1, 4) for _ in range(draw.randint(1, 4))])
        window_s = draw.uniform(0, 2)
        least = min(
            sum(float(costs[len(batch) - 1]) for batch in division)
            for division in partitions(range(len(times)), len(costs))
            if all(times[max(b)] - times[min(b)] <= window_s for b in division)
        )
        assert division_cost(times, costs, window_s) == pytest.approx(least)


@pytest.mark.parametrize("billing", ["reserved", "pay-per-use"])
@pytest.mark.parametrize("model", ["gpu", "line", "variants"])
def test_no_policy_is_cheaper_than_bound(model: str, billing: str) -> None:
    """A policy that serves nearly all requests in time costs at least the bound."""
    cell = Cell("steady", model, "medium", billing)
    rows = Rows(None)
    Runs(catalogue(), [cell], ["infless", "infaas"], [1], 30.0).run(rows, lambda _: None)
    for row in rows.all:
        assert row.missed < 0.03
        assert row.cost >= row.bound * (1 - row.missed)


def test_bound_falls_with_laxer_objective_and_rises_with_call_price() -> None:
    """The bound falls with a laxer objective and rises with a price per call."""
    known = catalogue()

    def bound(objective: str, billing: str = "reserved") -> float:
        return lower_bound(known.scenario(Cell("bursty", "gpu", objective, billing), 60.0, 1))

    assert bound("tight") > bound("medium") > bound("loose")
    assert bound("loose") < bound("loose", "pay-per-use")
