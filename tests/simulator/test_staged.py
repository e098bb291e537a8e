"""Staged execution in simulated time, compared with published and manual results."""

from __future__ import annotations

import random

import pytest

from benchmarks.lazy import BATCH_MAX, Result, measured, model
from benchmarks.staged import PendingArrival, lazily, windowed
from carpool.lazy_batching.program import Node, Program
from carpool.lazy_batching.rules import PAPER, Rules

COUNT = 1500


def lazy(rate_rps: float, rules: Rules) -> Result:
    """Run ResNet stage by stage."""

    def run(requests: list[PendingArrival]) -> None:
        lazily(requests, rules)

    return measured(model("ResNet"), rate_rps, COUNT, 1, run)


def window(rate_rps: float, window_s: float, size: int = BATCH_MAX) -> Result:
    """Run ResNet in whole batches."""

    def run(requests: list[PendingArrival]) -> None:
        windowed(requests, window_s, size)

    return measured(model("ResNet"), rate_rps, COUNT, 1, run)


@pytest.mark.parametrize(("rate_rps", "mean_ms"), [(16, 1.12), (250, 1.39), (1000, 3.93)])
def test_lazybatching_means_match_independent_program(rate_rps: float, mean_ms: float) -> None:
    """The means match those of an independent program within 10 %.

    The model has 50 nodes and takes 1.1 ms; a batch of b takes 0.75 + 0.25 b times as long.
    """
    assert pytest.approx(mean_ms, rel=0.1) == lazy(rate_rps, PAPER).mean_ms


@pytest.mark.parametrize(
    ("rate_rps", "window_s", "size", "mean_ms"),
    [
        (16, 0.0, 1, 1.11),
        (250, 0.0, 1, 1.32),
        (16, 0.005, BATCH_MAX, 5.95),
        (250, 0.005, BATCH_MAX, 5.24),
        (1000, 0.005, BATCH_MAX, 5.66),
    ],
)
def test_whole_batch_means_match_independent_program(
    rate_rps: float, window_s: float, size: int, mean_ms: float
) -> None:
    """Single requests and graph batching with 5 ms match the independent program's means."""
    assert pytest.approx(mean_ms, rel=0.1) == window(rate_rps, window_s, size).mean_ms


def test_joining_only_where_it_pays_beats_window_at_high_load() -> None:
    """At 2000 requests a second these rules beat a good window, and the paper's rules do not."""
    printed, ours = lazy(2000, PAPER).mean_ms, lazy(2000, Rules()).mean_ms

    assert ours < window(2000, 0.005).mean_ms < printed


@pytest.mark.parametrize("sla_s", [0.15, 1e6])
def test_objective_does_not_shrink_batches_under_load(sla_s: float) -> None:
    """At two thirds of the capacity, as many requests are in time as with whole batches.

    Keeping the oldest request in time in a small batch would soon make all others late.
    """
    ranker = Program("ranker", [Node([(0.04 + 0.002 * n) / 8 for n in range(1, 33)])] * 8)
    draw, now, times = random.Random(1), 0.0, []
    for _ in range(3000):
        now += draw.expovariate(200)
        times.append(now)
    ways = [[PendingArrival(at, ranker, sla_s) for at in times] for _ in range(2)]
    lazily(ways[0], Rules())
    windowed(ways[1], 0.0, 32)
    mean_s = [sum(each.latency_s for each in way) / len(way) for way in ways]
    late = [sum(each.latency_s > 0.15 for each in way) / len(way) for way in ways]

    assert mean_s[0] <= 1.02 * mean_s[1]
    assert late[0] <= late[1] + 0.01
