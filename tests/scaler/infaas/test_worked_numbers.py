"""INFaaS's worked numbers: Table 2 of the paper, and what its program and heuristic make of it."""

from __future__ import annotations

import math

import pytest

from scaler.policies.infaas.greedy import greedy
from scaler.policies.infaas.program import program
from scaler.policies.infaas.published import SLACK, additions, headroom, published
from scaler.policies.infaas.task import Need, Option, Task

LATENCIES_S = (0.200, 0.020, 0.015)
A, B, C = Option(5, 1, 1.0), Option(100, 3, 2.0), Option(800, 16, 8.0)
SOLVERS = [program, greedy]


def task(
    load_rps: float,
    running: tuple[int, ...] = (0, 0, 0),
    loading: float = 0.0,
    slo_s: float = 0.3,
    slack: float = 0.0,
) -> Task:
    """The three variants of Table 2, for one application."""
    options = (A, B, C)
    pairs = zip(options, LATENCIES_S, strict=True)
    worth = tuple(o.rate_rps if latency_s <= slo_s else 0.0 for o, latency_s in pairs)
    return Task(options, running, (Need(load_rps + slack, worth),), loading)


@pytest.mark.parametrize("solve", SOLVERS)
@pytest.mark.parametrize(
    ("load_rps", "slo_s", "counts", "cost"),
    [
        pytest.param(10, 0.3, (2, 0, 0), 2, id="10 at 300 ms: 2 A"),
        pytest.param(10, 0.05, (0, 1, 0), 3, id="10 at 50 ms: 1 B"),
        pytest.param(1000, 0.3, (0, 2, 1), 22, id="1000 at 300 ms: 2 B and C"),
    ],
)
def test_table_2(
    solve: type, load_rps: float, slo_s: float, counts: tuple[int, ...], cost: float
) -> None:
    """The cheapest variants for a load and an objective."""
    asked = task(load_rps, slo_s=slo_s)
    assert counts == solve(asked).counts
    assert cost == pytest.approx(asked.change_cost(counts))


def test_200_a_would_do_too() -> None:
    """For 1000 requests a second, at nearly ten times the cost."""
    assert 200 == task(1000).change_cost((200, 0, 0))


@pytest.mark.parametrize("solve", SOLVERS)
@pytest.mark.parametrize(
    ("loading", "counts", "cost", "other", "other_cost"),
    [
        pytest.param(0.2, (0, 10, 0), 42, (0, 2, 1), 50, id="dear loading: 10 B"),
        pytest.param(0.05, (0, 2, 1), 29, (0, 10, 0), 33, id="cheap loading: 2 B and C"),
    ],
)
def test_loading_is_in_the_cost(
    solve: type,
    loading: float,
    counts: tuple[int, ...],
    cost: float,
    other: tuple[int, ...],
    other_cost: float,
) -> None:
    """What takes long to load is dearer the more loading counts."""
    asked = task(1000, loading=loading)
    assert counts == solve(asked).counts
    assert cost == pytest.approx(asked.change_cost(counts))
    assert other_cost == pytest.approx(asked.change_cost(other))


@pytest.mark.parametrize("solve", SOLVERS)
@pytest.mark.parametrize(
    ("running", "load_rps", "slack", "change", "cost"),
    [
        pytest.param((2, 0, 0), 60, 3, (-2, 1, 0), 1.6, id="from 2 A up to B"),
        pytest.param((0, 0, 1), 4, 0, (1, 0, -1), -14.9, id="from C down to A"),
    ],
)
def test_from_what_runs(
    solve: type,
    running: tuple[int, ...],
    load_rps: float,
    slack: float,
    change: tuple[int, ...],
    cost: float,
) -> None:
    """What goes is credited, and what stays is not loaded again."""
    asked = task(load_rps, running, 0.1, slack=slack)
    solution = solve(asked)
    assert change == tuple(n - m for n, m in zip(solution.counts, running, strict=True))
    assert cost == pytest.approx(asked.change_cost(solution.counts))


@pytest.mark.parametrize(
    ("running", "load_rps", "expected_headroom", "chosen", "cost", "instead"),
    [
        pytest.param((2, 0, 0), 9.6, 1.0417, A, 1.1, B, id="2 A at 9.6: replicate A"),
        pytest.param((2, 0, 0), 60.0, 0.1667, B, 3.6, A, id="2 A at 60: upgrade to B"),
        pytest.param((0, 1, 0), 99.0, 1.0101, B, 3.6, C, id="1 B at 99: replicate B"),
    ],
)
def test_replicate_or_upgrade(
    running: tuple[int, ...],
    load_rps: float,
    expected_headroom: float,
    chosen: Option,
    cost: float,
    instead: Option,
) -> None:
    """Below a headroom of 1.05 the cheaper of more of the same and something faster."""
    asked = task(SLACK * load_rps, running, 0.1)
    found = additions(asked)
    assert expected_headroom == pytest.approx(headroom(asked, running, load_rps), abs=1e-4)
    assert chosen == asked.options[found[0].option]
    assert cost == pytest.approx(found[0].cost)
    assert instead in [asked.options[each.option] for each in found[1:]]
    more = [n + found[0].more * (o is chosen) for n, o in zip(running, (A, B, C), strict=True)]
    assert tuple(more) == published(asked).counts


def test_replicating_for_60_would_cost_12() -> None:
    """Eleven more of A, against one B."""
    costs = {each.option: each.cost for each in additions(task(SLACK * 60, (2, 0, 0), 0.1))}
    assert 12.1 == pytest.approx(costs[0])


def test_a_headroom_of_1_06_is_enough() -> None:
    """2 A at 9.4 requests a second stay as they are."""
    asked = task(SLACK * 9.4, (2, 0, 0), 0.1)
    assert 1.0638 == pytest.approx(headroom(asked, (2, 0, 0), 9.4), abs=1e-4)
    assert [] == additions(asked)
    assert (2, 0, 0) == published(asked).counts


def test_without_load_there_is_all_the_headroom() -> None:
    """Nothing comes, so nothing is short, and nothing need run."""
    assert math.inf == headroom(task(0), (1, 0, 0), 0.0)
    assert (0, 0, 0) == published(task(0, (1, 0, 0))).counts
