"""INFaaS's worked examples: Table 2 of the paper with its integer program and its heuristic."""

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
    """Return the task of one application with the three variants of Table 2."""
    options = (A, B, C)
    pairs = zip(options, LATENCIES_S, strict=True)
    served_rps = tuple(o.rate_rps if latency_s <= slo_s else 0.0 for o, latency_s in pairs)
    return Task(options, running, (Need(load_rps + slack, served_rps),), loading)


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
    """The solvers find the cheapest variants for a load and an objective."""
    asked = task(load_rps, slo_s=slo_s)
    assert counts == solve(asked).counts
    assert cost == pytest.approx(asked.change_cost(counts))


def test_cost_of_200_instances_of_a() -> None:
    """200 instances of A serve 1000 requests per second at nearly ten times the cost."""
    assert 200 == task(1000).change_cost((200, 0, 0))


@pytest.mark.parametrize("solve", SOLVERS)
@pytest.mark.parametrize(
    ("loading", "counts", "cost", "other", "other_cost"),
    [
        pytest.param(0.2, (0, 10, 0), 42, (0, 2, 1), 50, id="dear loading: 10 B"),
        pytest.param(0.05, (0, 2, 1), 29, (0, 10, 0), 33, id="cheap loading: 2 B and C"),
    ],
)
def test_cost_includes_loading(
    solve: type,
    loading: float,
    counts: tuple[int, ...],
    cost: float,
    other: tuple[int, ...],
    other_cost: float,
) -> None:
    """A higher weight of loading makes variants that load slowly more expensive."""
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
def test_running_instances_are_credited_and_not_loaded_again(
    solve: type,
    running: tuple[int, ...],
    load_rps: float,
    slack: float,
    change: tuple[int, ...],
    cost: float,
) -> None:
    """Removed instances are credited, and remaining ones are not loaded again."""
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
    """Below a headroom of 1.05 the cheaper of replication and upgrade is chosen."""
    asked = task(SLACK * load_rps, running, 0.1)
    found = additions(asked)
    assert expected_headroom == pytest.approx(headroom(asked, running, load_rps), abs=1e-4)
    assert chosen == asked.options[found[0].option]
    assert cost == pytest.approx(found[0].cost)
    assert instead in [asked.options[each.option] for each in found[1:]]
    more = [n + found[0].more * (o is chosen) for n, o in zip(running, (A, B, C), strict=True)]
    assert tuple(more) == published(asked).counts


def test_cost_of_replicating_for_60_rps() -> None:
    """Eleven more instances of A for 60 requests per second cost 12.1."""
    costs = {each.option: each.cost for each in additions(task(SLACK * 60, (2, 0, 0), 0.1))}
    assert 12.1 == pytest.approx(costs[0])


def test_a_headroom_of_1_06_is_enough() -> None:
    """Two instances of A at 9.4 requests per second stay unchanged."""
    asked = task(SLACK * 9.4, (2, 0, 0), 0.1)
    assert 1.0638 == pytest.approx(headroom(asked, (2, 0, 0), 9.4), abs=1e-4)
    assert [] == additions(asked)
    assert (2, 0, 0) == published(asked).counts


def test_headroom_is_infinite_without_load() -> None:
    """Without load the headroom is infinite, and no instance is needed."""
    assert math.inf == headroom(task(0), (1, 0, 0), 0.0)
    assert (0, 0, 0) == published(task(0, (1, 0, 0))).counts
