"""Interruptions: cancelled requests, stages that fail for some requests, invalid states."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.lazy_batching.job import Job
from carpool.lazy_batching.program import Node, NodeType, Program, RemainingRuns
from carpool.lazy_batching.rules import PAPER, Rules
from carpool.lazy_batching.scheduler import Scheduler
from tests.carpool.lazy_batching.drive import program
from tests.effort import scaled
from watchdog_plugin.protocols.tensors import Signature, TensorSpec
from watchdog_plugin.stage_execution.executor import Executor, Latch, ServedModel
from watchdog_plugin.stage_execution.stage_times import measured
from watchdog_plugin.stage_execution.staged_model import Step

if TYPE_CHECKING:
    from watchdog_plugin.protocols.tensors import Arrays

RULES = [Rules(), Rules(pays=False), Rules(estimate="serial"), PAPER]
KINDS = [NodeType.STATIC, NodeType.ENCODER, NodeType.DECODER]


@given(data=st.data(), rules=st.sampled_from(RULES), node_types=st.permutations(KINDS))
@settings(max_examples=scaled(200))
def test_every_request_ends_exactly_once(
    data: st.DataObject, rules: Rules, node_types: list[NodeType]
) -> None:
    """Every request is answered, failed or cancelled exactly once, and nothing is left behind."""
    models = [Program(name, [Node([1.0, 1.5, 1.7], each) for each in node_types]) for name in "ab"]
    scheduler, now, number = Scheduler(rules), 0.0, 0
    waiting: set[Job] = set()
    some: st.SearchStrategy[set[Job]]
    there: set[Job] = set()
    ended: list[Job] = []
    for _ in range(data.draw(st.integers(1, 60))):
        for _ in range(data.draw(st.integers(0, 3))):
            model = data.draw(st.sampled_from(models))
            left = RemainingRuns(data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3)))
            budget_s = data.draw(st.sampled_from([0.0, 9.0, math.inf]))
            rows = data.draw(st.integers(1, 2))
            job = Job(number, model, now, deadline=now + budget_s, left=left, rows=rows)
            number += 1
            scheduler.add(job)
            waiting.add(job)
            there.add(job)
        leaves: bool = data.draw(st.booleans())
        if waiting and leaves:
            chosen = data.draw(st.sampled_from(sorted(waiting, key=lambda each: each.id)))
            assert scheduler.cancel(chosen)
            waiting.discard(chosen)
            ended.append(chosen)
        entry = scheduler.next(now)
        if entry is None:
            continue
        waiting.difference_update(entry.jobs)
        for below in scheduler.table:
            waiting.difference_update(below.jobs)
        some = st.sets(st.sampled_from(entry.jobs))
        failed: set[Job] = data.draw(some) if data.draw(st.integers(0, 3)) == 0 else set()
        now += entry.program.node_s(entry.node, entry.rows)
        done = data.draw(some) - failed
        ended += [*failed, *scheduler.ran(done, failed)]
    while entry := scheduler.next(now):
        now += entry.program.node_s(entry.node, entry.rows)
        ended += scheduler.ran(set(entry.jobs))

    assert sorted(job.id for job in ended) == list(range(number))
    assert there == set(ended)
    assert (0, 0) == (scheduler.waiting, len(scheduler.table))
    assert [0, 0] == [scheduler.table.rows(model) for model in models]


def test_failed_request_frees_its_rows_for_waiting_ones() -> None:
    """The rows of a failed request are free at the same node boundary."""
    model = program(1.0, 1.0, batch_max=2)
    scheduler = Scheduler(Rules(pays=False))
    first, second, third = (Job(n, model, 0.0) for n in range(3))
    for job in (first, second, third):
        scheduler.add(job)
    entry = scheduler.next(0.0)
    assert entry is not None
    assert [first, second] == entry.jobs
    scheduler.ran((), {second})
    entry = scheduler.next(1.0)

    assert entry is not None
    assert [third] == entry.jobs


def test_request_that_cannot_join_is_not_starved_by_joining_ones() -> None:
    """A request whose shape cannot join begins once the running requests have ended."""
    model = Program("words", [Node([1.0] * 8, NodeType.DECODER)])
    scheduler, now = Scheduler(), 0.0
    scheduler.add(Job(0, model, 0.0, left=RemainingRuns(1, 5), key="a"))
    assert scheduler.next(0.0) is not None
    odd = Job(1, model, 0.5, left=RemainingRuns(1, 5), key="b")
    scheduler.add(odd)
    steps: dict[Job, int] = {}
    for number in range(2, 200):
        scheduler.add(Job(number, model, now, left=RemainingRuns(1, 5), key="a"))
        entry = scheduler.next(now)
        assert entry is not None
        for job in entry.jobs:
            steps[job] = steps.get(job, 0) + 1
        now += 1.0
        if odd in scheduler.ran({job for job in entry.jobs if steps[job] >= 5}):
            break

    assert now <= 3 * 5 + 1


class Counting:
    """Model that adds one to its state until it is ten, which NaN never reaches."""

    signature = Signature(
        [TensorSpec("x", "FP32", ("batch",))], [TensorSpec("seen", "FP32", ("batch", None))]
    )
    node_types = (NodeType.STATIC, NodeType.DECODER)
    steps_max = 12

    def run(self, stage: int, values: Arrays) -> Step:
        """Run a step for each row; raise for any batch with a state of thirteen."""
        if stage == 0:
            return Step(values)
        following = values["x"] + 1
        if np.any(following == 14):
            msg = "thirteen"
            raise ValueError(msg)
        return Step({"x": following}, following >= 10, {"seen": following})


@pytest.fixture
def lane() -> ServedModel:
    """A counting model with its measured times."""
    model: Any = Counting()
    return ServedModel(model, measured("counting", model, feeds, 4))


def feeds(rows: int) -> Arrays:
    """Return states for profiling."""
    return {"x": np.zeros(rows, np.float32)}


def test_nan_state_affects_only_its_own_request(lane: ServedModel) -> None:
    """A request with a NaN state ends at the step limit, and the others get their usual results."""
    executor, starts = Executor(), [3.0, math.nan, 7.0, 5.5]
    latch = Latch(len(starts))
    requests = [({"x": np.array([x], np.float32)}, 1, math.inf) for x in starts]
    members = executor.submit(lane, requests, "key", latch)
    latch.wait()
    seen = [member.outcome["seen"][0] for member in members if isinstance(member.outcome, dict)]

    assert [7, 12, 3, 5] == [len(each) for each in seen]
    assert [4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0] == list(seen[0])
    assert np.isnan(seen[1]).all()


def test_failure_in_later_step_fails_one_request(lane: ServedModel) -> None:
    """If a request makes its whole batch raise, only that request fails."""
    executor, latch = Executor(), Latch(4)
    made = partial(np.array, dtype=np.float32)
    requests = [({"x": made([x])}, 1, 5.0) for x in (1.0, 13.0, 4.0, 2.0)]
    members = executor.submit(lane, requests, "key", latch)
    latch.wait()
    outcomes = [member.outcome for member in members]

    assert [False, True, False, False] == [isinstance(each, Exception) for each in outcomes]
    assert [9, 6, 8] == [len(o["seen"][0]) for o in outcomes if isinstance(o, dict)]
