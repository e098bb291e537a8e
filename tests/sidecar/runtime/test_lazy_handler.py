"""A real handler with the executor `lazy` behind a real sidecar."""

from __future__ import annotations

import asyncio
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
    from pathlib import Path

Start = Any  # a context manager's maker; conftest says which


def body(length: int, seed: int) -> str:
    """A sequence whose answer has so many steps."""
    tokens = [length, *(seed + place for place in range(sequences.LENGTH_MAX - 1))]
    tensor = {"name": "tokens", "datatype": "INT64", "shape": [1, len(tokens)], "data": tokens}
    return json.dumps({"inputs": [tensor]})


def words(answer: bytes) -> list[int]:
    """What was answered."""
    outputs = json.loads(answer)["outputs"]
    return next(output["data"] for output in outputs if output["name"] == "word")


@on_loop
async def test_a_busy_handler_takes_requests_and_short_answers_leave_before_long_ones(
    sidecar: Start, recurrent: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each request is a batch of its own, everybody gets what he gets alone, the short first."""
    lengths = [35, 35, 35, 2, 3, 2]
    ended: list[int] = []
    async with sidecar(**lazy(recurrent)) as running:

        async def ask(number: int) -> tuple[list[int], bytes | None]:
            response = await running.ask(body(lengths[number], number), ("x-carpool-explain", "1"))
            ended.append(number)
            return words(response.body), response.header(b"x-carpool-batch")

        together = await asyncio.gather(*map(ask, range(len(lengths))))
        first_ended = ended[:3]
        alone = [await ask(number) for number in range(len(lengths))]

    assert lengths == [len(answer) for answer, _ in together]
    assert [answer for answer, _ in alone] == [answer for answer, _ in together]
    assert {b"1"} == {size for _, size in together}
    assert {3, 4, 5} == set(first_ended)
    capfd.readouterr()


@on_loop
async def test_two_models_in_one_function_run_side_by_side(
    sidecar: Start, recurrent: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Both are asked at once, with deadlines; everybody gets his model's answer, in time."""
    shutil.copytree(recurrent, tmp_path / "models" / "words")
    models.deep(tmp_path / "models" / "deep" / "model.onnx")
    rows = [json.dumps({"instances": [[n + place / 16 for place in range(16)]]}) for n in range(8)]
    settings = {**lazy(tmp_path), "carpool_slo": "20s"}
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


@on_loop
async def test_a_sidecar_that_is_told_to_end_lets_sequences_end_first(
    sidecar: Start, recurrent: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """All that was taken in is answered, in the middle of the model or not."""
    async with sidecar(**lazy(recurrent)) as running:
        asked = [asyncio.create_task(running.ask(body(30, n))) for n in range(14)]
        await until_in_flight(running)
        running.process.send_signal(signal.SIGTERM)
        answers = await asyncio.gather(*asked)

    assert [200] * 14 == [answer.status for answer in answers]
    capfd.readouterr()


@on_loop
async def test_a_handler_that_dies_in_the_middle_of_sequences_is_no_loss(
    sidecar: Start, recurrent: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Another one starts, and whoever was in flight is asked again."""
    async with sidecar(**lazy(recurrent)) as running:
        expected = [words((await running.ask(body(30, n))).body) for n in range(6)]
        asked = [asyncio.create_task(running.ask(body(30, n))) for n in range(6)]
        await until_in_flight(running)
        os.kill(running.handler_pid(), signal.SIGKILL)
        answers = await asyncio.gather(*asked)

    assert [200] * 6 == [answer.status for answer in answers]
    assert expected == [words(answer.body) for answer in answers]
    capfd.readouterr()


@on_loop
async def test_callers_who_leave_are_nobody_elses_affair(
    sidecar: Start, recurrent: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Half of them hang up in the middle of their sequence."""
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
    """The settings of a function that runs stage by stage."""
    return {
        "fprocess": f"{sys.executable} -m watchdog_plugin",
        "function_dir": str(folder),
        "carpool_executor": "lazy",
        "carpool_batch_max": "8",
    }


async def until_in_flight(running: Any) -> None:
    """Wait until the handler has several batches."""
    await running.until_metric("batch_in_flight", 2)
