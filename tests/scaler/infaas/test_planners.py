"""The greedy planner compared with the integer program, and properties of both."""

from __future__ import annotations

import os
import random
import re
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from carpool.errors import ConfigError
from scaler.policies.infaas.greedy import greedy
from scaler.policies.infaas.program import _aside, available, program
from scaler.policies.infaas.task import Need, Option, Task
from tests.effort import scaled
from tests.scaler.infaas.drawn_tasks import drawn_task

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


@pytest.mark.parametrize("seed", range(4))
def test_greedy_is_within_tenth_of_integer_program(seed: int) -> None:
    """On random tasks the greedy result costs at most 10 % more than the optimum."""
    draw = random.Random(seed)
    for _ in range(scaled(10)):
        task = drawn_task(draw)
        found, best = greedy(task), program(task)
        running = sum(o.cost * n for o, n in zip(task.options, task.running, strict=True))
        costs = [running + task.change_cost(each.counts) for each in (found, best)]
        assert not any(task.missing(found))
        assert costs[1] * (1 - 1e-6) <= costs[0] <= 1.1 * costs[1]


@pytest.mark.parametrize("solve", [greedy, program])
def test_needs_are_covered_by_suitable_variants(solve: type) -> None:
    """Needs are covered by suitable instances, with shares of no more instances than planned."""
    draw = random.Random(9)
    for _ in range(scaled(12)):
        task = drawn_task(draw, needs_most=3)
        solution = solve(task)
        assert not any(task.missing(solution))
        for option, count in enumerate(solution.counts):
            assert sum(own[option] for own in solution.shares) <= count + 1e-6
        for need, own in zip(task.needs, solution.shares, strict=True):
            assert all(
                served_rps or part <= 1e-9
                for served_rps, part in zip(need.served_rps, own, strict=True)
            )


@pytest.mark.parametrize("solve", [greedy, program])
def test_limited_room_is_used_fully(solve: type) -> None:
    """If not everything fits, the plan uses the room there is within the maximum."""
    options = (Option(5, 1, cpu=1), Option(100, 3, cpu=4, gpu=10))
    task = Task(options, (0, 0), (Need(1000, (5, 100)),), capacity=(10.0, 100.0))
    assert (2, 2) == solve(task).counts
    assert (0, 1) == solve(replace(task, most=1)).counts


def test_unreachable_room_does_not_change_task() -> None:
    """Room beyond the reach of any solution does not change a task."""
    draw = random.Random(11)
    for _ in range(scaled(20)):
        task = drawn_task(draw, needs_most=3)
        wide, wider = (replace(task, capacity=(size, size)) for size in (1e6, 2e6))
        assert wide.within_reach() == wider.within_reach()
        assert greedy(wide) == greedy(wide.within_reach())
    tight = replace(drawn_task(draw), capacity=(0.5, 0.0))
    assert tight == tight.within_reach()


def test_spare_capacity_serves_other_needs() -> None:
    """An instance needed for the more demanding application also serves the other one."""
    options = (Option(10, 1), Option(100, 5))
    needs = (Need(20, (10, 100)), Need(50, (0, 100)))
    for solve in (greedy, program):
        assert (0, 1) == solve(Task(options, (0, 0), needs)).counts


def test_a_missing_solver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without SciPy, the error names an extra that brings it."""
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(ConfigError) as raised:
        available()
    named = re.search(r"pip install 'carpool\[(\w+)\]'", str(raised.value))
    assert named
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    assert any(need.startswith("scipy") for need in extras[named[1]])


@pytest.mark.parametrize("seed", range(3))
def test_greedy_is_near_integer_program_for_three_needs(seed: int) -> None:
    """With up to three overlapping needs, greedy costs at most 17 % more than the optimum."""
    draw = random.Random(100 + seed)
    for _ in range(scaled(12)):
        task = drawn_task(draw, needs_most=3)
        found, best = greedy(task), program(task)
        running = sum(o.cost * n for o, n in zip(task.options, task.running, strict=True))
        costs = [running + task.change_cost(each.counts) for each in (found, best)]
        assert not any(task.missing(found))
        assert costs[1] * (1 - 1e-6) <= costs[0] <= 1.17 * costs[1]


def test_needs_share_instances_that_suit_several() -> None:
    """Needs share instances that suit several of them, so fewer or cheaper ones start."""
    options = (Option(120, 10), Option(100, 8), Option(100, 8), Option(2, 1), Option(130, 20))
    needs = (Need(60, (100, 90, 0, 0, 130)), Need(60, (100, 0, 90, 0, 130)))
    for solve in (greedy, program):
        found = solve(Task(options, (0, 0, 0, 0, 0), needs))
        assert (0, 1, 1, 0, 0) == found.counts
    wide = (Need(50, (100, 90, 0, 0, 130)), Need(50, (100, 0, 90, 0, 130)))
    for solve in (greedy, program):
        assert (1, 0, 0, 0, 0) == solve(Task(options, (0, 0, 0, 0, 0), wide)).counts


def test_needs_use_instances_of_most_value_to_them() -> None:
    """Instances suffice if each need uses those that serve most of it."""
    needs = (Need(3, (0, 131)), Need(85, (0.8, 92.4)), Need(15, (2, 132)))
    task = Task((Option(2, 1), Option(100, 10)), (0, 0), needs)
    assert any(task.missing(task.solution((4, 1))))
    assert not any(task.missing(task.solution((4, 1), well=True)))


def test_the_solver_prints_nothing_to_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    """Output of the solver's library goes to standard error, as plans are printed as JSON."""
    with _aside():
        os.write(1, b"the solver's own words\n")
    os.write(1, b"a plan\n")
    assert ("a plan\n", "the solver's own words\n") == capfd.readouterr()
