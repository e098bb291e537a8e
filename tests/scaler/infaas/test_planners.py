"""Greedy against the integer program, and what both owe."""

from __future__ import annotations

import os
import random
import sys
from dataclasses import replace

import pytest

from carpool.errors import ConfigError
from scaler.policies.infaas.greedy import greedy
from scaler.policies.infaas.program import _aside, available, program
from scaler.policies.infaas.task import Need, Option, Task
from tests.effort import scaled
from tests.scaler.infaas.drawn_tasks import drawn_task


@pytest.mark.parametrize("seed", range(4))
def test_greedy_is_within_a_tenth_of_the_program(seed: int) -> None:
    """On random tasks what greedy leads to costs at most 10 % more than the optimum."""
    draw = random.Random(seed)
    for _ in range(scaled(10)):
        task = drawn_task(draw)
        found, best = greedy(task), program(task)
        running = sum(o.cost * n for o, n in zip(task.options, task.running, strict=True))
        costs = [running + task.change_cost(each.counts) for each in (found, best)]
        assert not any(task.missing(found))
        assert costs[1] * (1 - 1e-6) <= costs[0] <= 1.1 * costs[1]


@pytest.mark.parametrize("solve", [greedy, program])
def test_every_need_is_covered_by_what_is_good_enough(solve: type) -> None:
    """Shares add up to no more instances than there are, and never of one that does not suit."""
    draw = random.Random(9)
    for _ in range(scaled(12)):
        task = drawn_task(draw, needs_most=3)
        solution = solve(task)
        assert not any(task.missing(solution))
        for option, count in enumerate(solution.counts):
            assert sum(own[option] for own in solution.shares) <= count + 1e-6
        for need, own in zip(task.needs, solution.shares, strict=True):
            assert all(worth or part <= 1e-9 for worth, part in zip(need.worth, own, strict=True))


@pytest.mark.parametrize("solve", [greedy, program])
def test_little_room_is_used_as_far_as_it_goes(solve: type) -> None:
    """Where not all fits, as much as fits is planned, and no more instances than are allowed."""
    options = (Option(5, 1, cpu=1), Option(100, 3, cpu=4, gpu=10))
    task = Task(options, (0, 0), (Need(1000, (5, 100)),), room=(10.0, 100.0))
    assert (2, 2) == solve(task).counts
    assert (0, 1) == solve(replace(task, most=1)).counts


def test_room_that_no_solution_reaches_makes_no_other_task() -> None:
    """What others start on endless servers changes nothing; on small ones it does."""
    draw = random.Random(11)
    for _ in range(scaled(20)):
        task = drawn_task(draw, needs_most=3)
        wide, wider = (replace(task, room=(size, size)) for size in (1e6, 2e6))
        assert wide.within_reach() == wider.within_reach()
        assert greedy(wide) == greedy(wide.within_reach())
    tight = replace(drawn_task(draw), room=(0.5, 0.0))
    assert tight == tight.within_reach()


def test_what_one_need_leaves_over_another_uses() -> None:
    """An instance that the demanding application needs serves the modest one too."""
    options = (Option(10, 1), Option(100, 5))
    needs = (Need(20, (10, 100)), Need(50, (0, 100)))
    for solve in (greedy, program):
        assert (0, 1) == solve(Task(options, (0, 0), needs)).counts


def test_a_missing_solver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without SciPy the program says what to install."""
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(ConfigError, match=r"pip install scipy"):
        available()


@pytest.mark.parametrize("seed", range(3))
def test_greedy_is_near_the_program_for_three_needs_too(seed: int) -> None:
    """Needs that overlap crosswise cost at most a sixth more than they have to."""
    draw = random.Random(100 + seed)
    for _ in range(scaled(12)):
        task = drawn_task(draw, needs_most=3)
        found, best = greedy(task), program(task)
        running = sum(o.cost * n for o, n in zip(task.options, task.running, strict=True))
        costs = [running + task.change_cost(each.counts) for each in (found, best)]
        assert not any(task.missing(found))
        assert costs[1] * (1 - 1e-6) <= costs[0] <= 1.17 * costs[1]


def test_needs_share_what_is_worth_having_for_several() -> None:
    """One need after the other greedy would start an instance for each; shared, fewer do."""
    options = (Option(120, 10), Option(100, 8), Option(100, 8), Option(2, 1), Option(130, 20))
    needs = (Need(60, (100, 90, 0, 0, 130)), Need(60, (100, 0, 90, 0, 130)))
    for solve in (greedy, program):
        found = solve(Task(options, (0, 0, 0, 0, 0), needs))
        assert (0, 1, 1, 0, 0) == found.counts
    wide = (Need(50, (100, 90, 0, 0, 130)), Need(50, (100, 0, 90, 0, 130)))
    for solve in (greedy, program):
        assert (1, 0, 0, 0, 0) == solve(Task(options, (0, 0, 0, 0, 0), wide)).counts


def test_each_need_takes_what_is_worth_the_most_to_it() -> None:
    """Instances suffice for all if none takes what others could use better."""
    needs = (Need(3, (0, 131)), Need(85, (0.8, 92.4)), Need(15, (2, 132)))
    task = Task((Option(2, 1), Option(100, 10)), (0, 0), needs)
    assert any(task.missing(task.solution((4, 1))))
    assert not any(task.missing(task.solution((4, 1), well=True)))


def test_the_solver_prints_nothing_to_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    """Where plans are printed as JSON: what its library writes goes to standard error."""
    with _aside():
        os.write(1, b"the solver's own words\n")
    os.write(1, b"a plan\n")
    assert ("a plan\n", "the solver's own words\n") == capfd.readouterr()
