"""Whichever requests join, each gets the result that the whole model gives for it alone."""

from __future__ import annotations

import threading
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from carpool.lazy_batching.job import Job
from carpool.lazy_batching.program import Node, Program, RemainingRuns
from carpool.lazy_batching.rules import PAPER, Rules
from carpool.lazy_batching.scheduler import Scheduler
from examples import models as examples
from examples import sequences
from tests.effort import scaled
from tests.watchdog_plugin import models
from tests.watchdog_plugin.cutting import cut
from watchdog_plugin.onnx.session import OnnxSession
from watchdog_plugin.stage_cutting import sample
from watchdog_plugin.stage_cutting.chain import Chain
from watchdog_plugin.stage_execution.executor import Executor, Latch, Member, ServedModel, run_stage
from watchdog_plugin.stage_execution.staged_model import (
    ChainModel,
    IterativeModel,
    StagedModel,
    emits,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from watchdog_plugin.protocols.tensors import Arrays

BATCH_MAX = 6
STEPS = 5  # of a sequence whose length is free


def staged(path: Path) -> ChainModel:
    """Return a model cut into four stages."""
    whole = OnnxSession(path, 1)
    sessions = [OnnxSession(file, 1) for file in cut(path, 4, path.with_suffix(""))]
    return ChainModel(Chain(sessions, list(whole.signature.outputs)), whole.signature)


def iterative(path: Path) -> IterativeModel:
    """Return an encoder and decoder of the examples as one model."""
    encoder = OnnxSession(path / "model.onnx", 1)
    decoder = OnnxSession(path / "decoder.onnx", 1)
    chain = Chain([encoder], list(decoder.signature.inputs))
    state = chain.run_all(sample.feeds(encoder.signature, 2))
    made = emits("decoder", state, decoder.run(state))
    return IterativeModel(chain, list(encoder.signature.inputs.values()), decoder.run, made, 40)


@pytest.fixture(scope="module")
def lanes(tmp_path_factory: pytest.TempPathFactory, recurrent: Path) -> dict[str, ServedModel]:
    """Four models, with times for which batching pays and newcomers may join."""
    folder = tmp_path_factory.mktemp("models")
    made: dict[str, StagedModel] = {
        "deep": staged(models.deep(folder / "deep.onnx")),
        "lstm": staged(models.lstm_stack(folder / "lstm.onnx", layers=4, width=16)),
        "recurrent": iterative(recurrent),
        "transformer": iterative(examples.build("transformer", folder).parent),
    }
    return {name: ServedModel(model, times(name, model)) for name, model in made.items()}


def times(name: str, model: StagedModel) -> Program:
    """Return a program with 1 ms per stage, and a tenth more for each further row."""
    rising = [1e-3 * (1 + 0.1 * more) for more in range(BATCH_MAX)]
    return Program(name, [Node(rising, each) for each in model.node_types])


def request(lane: ServedModel, seed: int, rows: int) -> Arrays:
    """Return random inputs for a model."""
    rng = np.random.default_rng(seed)
    spec = next(iter(lane.model.signature.inputs.values()))
    if spec.datatype == "INT64":
        return {spec.name: rng.integers(1, 9, (rows, sequences.LENGTH_MAX))}
    shape = (rows, *(size if isinstance(size, int) else STEPS for size in spec.shape[1:]))
    return {spec.name: rng.standard_normal(shape).astype(np.float32)}


@pytest.fixture(scope="module")
def alone(lanes: dict[str, ServedModel]) -> Callable[[str, int, int], Arrays]:
    """A function that returns a model's cached result for one request run by itself."""

    @cache
    def ask(name: str, seed: int, rows: int) -> Arrays:
        lane = lanes[name]
        member = Member(lane, request(lane, seed, rows), rows, Latch(1))
        job = Job(0, lane.program, 0.0, left=RemainingRuns(1, 8), rows=rows, payload=member)
        scheduler = Scheduler()
        scheduler.add(job)
        while entry := scheduler.next(0.0):
            failed = run_stage(list(entry.jobs), entry.node)
            assert not failed
            scheduler.ran({job} if member.ended else ())
        member.end()
        assert isinstance(member.outcome, dict)
        return member.outcome

    return ask


def equal(expected: Arrays, found: Arrays) -> None:
    """Assert that all arrays are equal to five digits."""
    assert expected.keys() == found.keys()
    for name, array in expected.items():
        assert array.shape == found[name].shape
        scale = float(np.max(np.abs(array)))
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-5 * scale)


COMING = st.lists(
    st.tuples(
        st.sampled_from(["deep", "lstm", "recurrent", "transformer"]),
        st.integers(0, 7),  # which input
        st.integers(1, 3),  # its rows
        st.integers(0, 6),  # boundaries that pass before it comes
        st.sampled_from([0.0, 0.01, 1.0, float("inf")]),  # seconds to its deadline
    ),
    min_size=1,
    max_size=8,
)


@given(coming=COMING, rules=st.sampled_from([Rules(), Rules(pays=False), PAPER]))
@settings(max_examples=scaled(60), suppress_health_check=list(HealthCheck))
def test_any_interleaving_gives_same_results_as_whole_model(
    lanes: dict[str, ServedModel],
    alone: Callable[[str, int, int], Arrays],
    coming: list[tuple[str, int, int, int, float]],
    rules: Rules,
) -> None:
    """Results are right for four models on one scheduler, joined at any boundary."""
    scheduler = Scheduler(rules)
    waiting = list(coming)
    members: dict[int, tuple[Member, str, int, int]] = {}
    passed = 0
    while waiting or scheduler.waiting or scheduler.table.top:
        while waiting and (waiting[0][3] <= passed or not scheduler.table.top):
            name, seed, rows, _, budget = waiting.pop(0)
            rows = rows if name in {"deep", "lstm"} else 1
            lane = lanes[name]
            member = Member(lane, request(lane, seed, rows), rows, Latch(1))
            number = len(members)
            members[number] = (member, name, seed, rows)
            scheduler.add(
                Job(
                    number,
                    lane.program,
                    0.0,
                    deadline=budget,
                    left=RemainingRuns(1, 8),
                    rows=rows,
                    payload=member,
                )
            )
            passed = 0
        entry = scheduler.next(0.0)
        assert entry is not None
        jobs = list(entry.jobs)
        assert not run_stage(jobs, entry.node)
        for job in scheduler.ran({job for job in jobs if job.payload.ended}):
            job.payload.end()
        passed += 1

    for member, name, seed, rows in members.values():
        assert isinstance(member.outcome, dict)
        equal(alone(name, seed, rows), member.outcome)


def test_concurrent_threads_get_their_own_results(
    lanes: dict[str, ServedModel], alone: Callable[[str, int, int], Arrays]
) -> None:
    """Eight threads that use three models on one executor each get their own results."""
    executor = Executor()
    found: dict[tuple[str, int], object] = {}

    def call(thread: int) -> None:
        for turn in range(6):
            name = ("deep", "recurrent", "transformer")[(thread + turn) % 3]
            lane, seed = lanes[name], 10 * thread + turn
            latch = Latch(1)
            (member,) = executor.submit(lane, [(request(lane, seed, 1), 1, 5.0)], name, latch)
            latch.wait()
            found[name, seed] = member.outcome

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 48 == len(found)
    for (name, seed), outcome in found.items():
        assert isinstance(outcome, dict)
        equal(alone(name, seed, 1), outcome)


def test_faulty_row_fails_alone(tmp_path: Path) -> None:
    """A row that makes its batch fail gets an error, and the other rows get their results."""
    whole = OnnxSession(models.lookup(tmp_path / "lookup.onnx"), 1)
    model = ChainModel(Chain([whole], ["value"]), whole.signature)
    executor, latch, lane = Executor(), Latch(3), ServedModel(model, times("lookup", model))
    indices = [3, 77, 5]
    members = executor.submit(
        lane, [({"index": np.array([i])}, 1, 5.0) for i in indices], "k", latch
    )
    latch.wait()

    first, bad, last = (member.outcome for member in members)
    assert isinstance(first, dict)
    assert isinstance(last, dict)
    assert [30.0, 50.0] == [float(first["value"][0]), float(last["value"][0])]
    assert isinstance(bad, Exception)
