"""The paper's own examples: Fig. 10, Eq. 1 and 2, Algorithm 1."""

from __future__ import annotations

import dataclasses

import pytest

from carpool.lazy_batching.job import Job
from carpool.lazy_batching.lengths import Lengths
from carpool.lazy_batching.program import Node, NodeType, Program, RemainingRuns
from carpool.lazy_batching.rules import PAPER, Rules
from tests.carpool.lazy_batching.drive import Drive, program

ORACLE = dataclasses.replace(PAPER, estimate="batched")
EIGHT = program(*[1.0] * 8)


def fig_10(sla: float, rules: Rules = PAPER) -> Drive:
    """Run the three requests of Fig. 10 on a device that is free at 2."""
    jobs = [
        Job(number, EIGHT, at, deadline=at + sla) for number, at in enumerate((0.0, 3.5, 4.5), 1)
    ]
    return Drive(rules).run(jobs, free_at=2.0)


def test_figure_10_step_by_step() -> None:
    """R1 runs from 2, R2 preempts it at 4, R3 at 5; R2 and R3 merge at node B, all three at C."""
    batches = dict(fig_10(30).batches)

    assert [(1,), (1,), (2,), (3,), (2, 3)] == [batches[at] for at in (2.0, 3.0, 4.0, 5.0, 6.0)]
    assert {1, 2, 3} == set(batches[7.0])
    assert {1: 13.0, 2: 13.0, 3: 13.0} == fig_10(30).ended


@pytest.mark.parametrize(
    ("sla", "rules", "ended"),
    [
        pytest.param(20, PAPER, (12, 12, 20), id="20-R3 refused as 20 - (5 + 24) < 0"),
        pytest.param(20, ORACLE, (13, 13, 13), id="20-the oracle knows better"),
        pytest.param(12, ORACLE, (12, 12, 20), id="12-too tight for the oracle too"),
    ],
)
def test_figure_10_with_tighter_objectives(
    sla: float, rules: Rules, ended: tuple[float, ...]
) -> None:
    """A request that would make another late is not admitted until the table is empty."""
    assert ended == tuple(fig_10(sla, rules).ended[number] for number in (1, 2, 3))


def test_single_exec_by_algorithm_1() -> None:
    """Static 2, encoder 0.5 x 10 and decoder 1.0 x 30 sum to 37, and to 19 with 12 outputs."""
    model = Program(
        "translate",
        [Node([2.0]), Node([0.5], NodeType.ENCODER), Node([1.0], NodeType.DECODER)],
    )

    assert 37.0 == model.seconds(0, RemainingRuns(10, 30))
    assert 19.0 == model.seconds(0, RemainingRuns(10, 12))


@pytest.mark.parametrize(("cover", "steps"), [(0.16, 5), (0.5, 15), (0.9, 25), (0.99, 35)])
def test_predicted_steps_cover_given_share_of_lengths(cover: float, steps: int) -> None:
    """Of lengths 5 x 20, 15 x 45, 25 x 25, 35 x 10, 16 % are covered by 5, and 90 % by 25."""
    lengths = Lengths(cover)
    for length, count in ((5, 20), (15, 45), (25, 25), (35, 10)):
        for _ in range(count):
            lengths.observe(length)

    assert steps == lengths.predicted()
