"""A real handler with the executor `lazy` behind a real sidecar."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

from examples import sequences
from tests.sidecar.runtime.conftest import on_loop
from tests.watchdog_plugin import models

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.gate import Gate
    from tests.sidecar.runtime.conftest import Sidecar

Start = Any  # a context manager's maker; conftest says which


def body(length: int, seed: int) -> str:
    """Return a sequence whose response takes ``length`` steps."""
    tokens = [length, *(seed + place for place in range(sequences.LENGTH_MAX - 1))]
    tensor = {"name": "tokens", "datatype": "INT64", "shape": [1, len(tokens)], "data": tokens}
    return json.dumps({"inputs": [tensor]})


def words(answer: bytes) -> list[int]:
    """Return the words of a response."""
    outputs = json.loads(answer)["outputs"]
    return next(output["data"] for output in outputs if output["name"] == "word")


# Counts down from twice the input; what begins at 20 or more goes on until the gate is open.
COUNTS_DOWN = """
import fcntl
import numpy as np

steps_max = 10**9

def decode_step(state):
    left = state["y"]
    long = left >= 20
    ends = (left <= 2) | (long & is_open())
    return {{"next.y": np.where(long, left, left - 2), "done": ends.all(1), "word": left[:, 0]}}

def is_open():
    with open({gate!r}) as gate:
        try:
            fcntl.flock(gate, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
"""


def count(number: int) -> str:
    """Return a request whose response counts down from twice ``number``."""
    return json.dumps({"instances": [[number] * 3]})


@contextlib.asynccontextmanager
async def counting(start: Start, folder: Path, gate: Gate) -> AsyncIterator[Sidecar]:
    """Run a sidecar whose function is `COUNTS_DOWN`, with the gate closed."""
    models.doubler(folder / "model.onnx")
    (folder / "handler.py").write_text(COUNTS_DOWN.format(gate=str(gate.path)))
    gate.open()
    async with start(**lazy(folder), handler_lazy_rules='{"pays": false}') as running:
        gate.close()
        yield running


@on_loop
async def test_short_requests_end_before_long_ones_on_busy_handler(
    sidecar: Start, tmp_path: Path, gate: Gate, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each request is its own batch, and short ones end while long ones continue."""
    explain = ("x-carpool-explain", "1")
    async with counting(sidecar, tmp_path, gate) as running:
        long = [asyncio.create_task(running.ask(count(35), explain)) for _ in range(3)]
        await running.until_metric("batch_in_flight", 3)
        short = await asyncio.gather(*[running.ask(count(n), explain) for n in (2, 3, 2)])
        assert not any(task.done() for task in long)
        gate.open()
        answers = [*short, *await asyncio.gather(*long)]

    told = [json.loads(answer.body)["predictions"][0] for answer in answers]
    assert [[4, 2], [6, 4, 2], [4, 2]] == told[:3]
    assert {70} == {word for words in told[3:] for word in words}
    assert {b"1"} == {answer.header(b"x-carpool-batch") for answer in answers}
    capfd.readouterr()


@pytest.mark.slow
@on_loop
async def test_two_models_in_one_function_run_side_by_side(
    sidecar: Start, recurrent: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two models of one function answer concurrent requests, each with its own outputs."""
    shutil.copytree(recurrent, tmp_path / "models" / "words")
    models.deep(tmp_path / "models" / "deep" / "model.onnx")
    rows = [json.dumps({"instances": [[n + place / 16 for place in range(16)]]}) for n in range(8)]
    settings = {**lazy(tmp_path), "carpool_slo": "60s"}
    async with sidecar(**settings) as running:

        async def ask(number: int) -> object:
            if number % 2:
                target, text = "/v2/models/words/infer", body(5 + number, number)
            else:
                target, text = "/deep", rows[number // 2]
            response = await running.ask(text, target=target)
            assert 200 == response.status
            return words(response.body) if number % 2 else json.loads(response.body)

        together = await asyncio.gather(*map(ask, range(16)))
        alone = [await ask(number) for number in range(16)]
        unknown = await running.ask("{}", target="/v2/models/none/infer")

    for one, other in zip(alone, together, strict=True):
        if isinstance(one, dict):
            assert isinstance(other, dict)
            assert pytest.approx(one["predictions"][0], rel=1e-5) == other["predictions"][0]
        else:
            assert one == other
    assert 404 == unknown.status
    capfd.readouterr()


@pytest.mark.slow
@on_loop
async def test_terminating_sidecar_answers_queued_and_in_flight_requests(
    sidecar: Start, tmp_path: Path, gate: Gate, capfd: pytest.CaptureFixture[str]
) -> None:
    """A sidecar that is told to end answers all requests in its queue and in flight."""
    async with counting(sidecar, tmp_path, gate) as running:
        asked = []
        for number in range(1, 13):  # all that it takes at once
            asked.append(asyncio.create_task(running.ask(count(35))))
            await running.until_metric("batch_in_flight", number)
        asked += [asyncio.create_task(running.ask(count(2))) for _ in range(2)]
        await running.until_metric("batch_queue_requests", 2)
        running.process.send_signal(signal.SIGTERM)
        gate.open()
        answers = await asyncio.gather(*asked)

    assert [200] * 14 == [answer.status for answer in answers]
    capfd.readouterr()


@pytest.mark.slow
@on_loop
async def test_requests_of_dead_handler_are_sent_to_its_successor(
    sidecar: Start, recurrent: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """When a handler dies, requests in flight are sent again to its successor."""
    async with sidecar(**lazy(recurrent)) as running:
        expected = [words((await running.ask(body(30, n))).body) for n in range(6)]
        asked = [asyncio.create_task(running.ask(body(30, n))) for n in range(6)]
        await until_in_flight(running)
        os.kill(running.handler_pid(), signal.SIGKILL)
        answers = await asyncio.gather(*asked)

    assert [200] * 6 == [answer.status for answer in answers]
    assert expected == [words(answer.body) for answer in answers]
    capfd.readouterr()


@pytest.mark.slow
@on_loop
async def test_callers_that_disconnect_do_not_affect_others(
    sidecar: Start, recurrent: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Callers that disconnect during their sequences do not affect the others."""
    async with sidecar(**lazy(recurrent)) as running:
        asked = [asyncio.create_task(running.ask(body(30, n))) for n in range(12)]
        await until_in_flight(running)
        for leaver in asked[::2]:
            leaver.cancel()
        answers = await asyncio.gather(*asked[1::2])
        again = await running.ask(body(3, 1))

    assert [30] * 6 == [len(words(answer.body)) for answer in answers]
    assert 3 == len(words(again.body))
    capfd.readouterr()


def lazy(folder: Path) -> dict[str, str]:
    """Return the settings of a function that runs stage by stage."""
    return {
        "fprocess": f"{sys.executable} -m watchdog_plugin",
        "function_dir": str(folder),
        "carpool_executor": "lazy",
        "carpool_batch_max": "8",
    }


async def until_in_flight(running: Any) -> None:
    """Wait until the handler has two batches."""
    await running.until_metric("batch_in_flight", 2)
