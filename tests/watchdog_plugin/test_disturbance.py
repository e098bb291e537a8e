"""Selection of runs that neither other programs nor other machines disturb."""

from __future__ import annotations

import itertools
import math
import os
from typing import TYPE_CHECKING

import pytest

from watchdog_plugin.profiling import disturbance
from watchdog_plugin.profiling.disturbance import Disturbance
from watchdog_plugin.profiling.other_programs import OtherPrograms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Machine = Callable[[Iterable[float], Iterable[float]], Disturbance]

HERE = min(os.sched_getaffinity(0))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a machine by the times of its computations, and its waiting in seconds a block."""

    def made(computations_s: Iterable[float], waiting_s: Iterable[float]) -> Disturbance:
        times_s, waited_s = iter(computations_s), itertools.accumulate(_doubled(waiting_s))
        monkeypatch.setattr(disturbance, "_computation_s", lambda: next(times_s))
        monkeypatch.setattr(OtherPrograms, "queued_s", lambda _: next(waited_s))
        monkeypatch.setattr(Disturbance, "_fastest_s", 1.0)
        monkeypatch.setattr(disturbance, "_BLOCK_S", 0.0)  # one run in each
        return Disturbance()

    return made


def _doubled(waiting_s: Iterable[float]) -> Iterable[float]:
    for each in waiting_s:
        yield from (0.0, each)  # before and after the block


def _twice(computations_s: Iterable[float]) -> Iterable[float]:
    for each in computations_s:
        yield from (each, each)  # before and after the block


def _runs(machine: Disturbance, count: int, end_s: float = math.inf) -> tuple[bool, list[int]]:
    numbers = itertools.count()
    calm, results = machine.runs(lambda: next(numbers), count, end_s, [HERE])
    return calm, sorted(results)


def test_undisturbed_runs_are_returned(machine: Machine) -> None:
    """As many as are wanted, although others were disturbed by neighbours or other programs."""
    computations_s = [1.0, 1.5, 1.1, 1.0, 1.2, 1.4, 1.0]
    waiting_s = [0, 0, 0, 9.0, 0, 0, 0]
    assert (True, [0, 2, 4, 6]) == _runs(machine(_twice(computations_s), waiting_s), 4)


def test_runs_are_disturbed_if_a_neighbour_comes_or_goes(machine: Machine) -> None:
    """The computation before the runs counts as well as the one after them."""
    computations_s = [1.0, 1.5, 1.5, 1.0, *[1.0] * 6]
    assert (True, [2, 3, 4]) == _runs(machine(computations_s, itertools.repeat(0.0)), 3)


def test_least_disturbed_runs_are_returned_if_there_are_no_others(machine: Machine) -> None:
    """After twice as many runs as are wanted."""
    found = _runs(machine(_twice([1.5, 1.4, 1.6, 1.3, 1.7, 1.8]), itertools.repeat(0.0)), 3)
    assert (False, [0, 1, 3]) == found


def test_a_few_undisturbed_runs_are_enough(machine: Machine) -> None:
    """Three undisturbed runs are better than more of which some are disturbed."""
    found = _runs(machine(_twice([1.5] * 3 + [1.0] * 3 + [1.5] * 2), itertools.repeat(0.0)), 4)
    assert (True, [3, 4, 5]) == found


def test_no_run_begins_after_the_time_limit(machine: Machine) -> None:
    """The first run is completed in any case."""
    assert (True, [0]) == _runs(machine(_twice([1.0]), itertools.repeat(0.0)), 4, -math.inf)


def test_a_faster_computation_shows_that_earlier_ones_were_disturbed(machine: Machine) -> None:
    """What is undisturbed is known only once it has been seen."""
    found = _runs(machine(_twice([1.0, 0.6, 1.0, 0.6, 0.6]), itertools.repeat(0.0)), 4)
    assert (True, [0, 1, 3, 4]) == found


def test_waiting_for_calm_ends(machine: Machine) -> None:
    """It ends when no other machine uses the core, and at the time limit."""
    times_s = iter([1.5, 1.5, 1.0, 1.5])
    some = machine(times_s, [])
    some.await_calm([HERE], math.inf)
    assert 1.5 == next(times_s)
    machine([1.5], []).await_calm([HERE], -math.inf)


def test_calmest_cores_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calling thread may use the same cores as before."""
    allowed, moves = os.sched_getaffinity(0), list[list[int]]()
    times_s = {3: 1.5, 4: 1.0, 7: 1.2}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(times_s))
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: moves.append([*cores]))
    monkeypatch.setattr(disturbance, "_computation_s", lambda: times_s[moves[-1][0]])
    monkeypatch.setattr(Disturbance, "_fastest_s", math.inf)
    assert [4, 7] == Disturbance().calmest(2)
    assert [3, 4, 7] == moves[-1]
    monkeypatch.undo()
    assert sorted(allowed) == Disturbance().calmest(len(allowed) + 1)
    assert allowed == os.sched_getaffinity(0)


def test_computation_takes_time() -> None:
    """The computation is long enough for this thread's clock."""
    assert disturbance._computation_s() > 0
