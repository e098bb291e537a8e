"""A real handler with the executor `lazy` behind a real sidecar."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

from examples import sequences
from tests.sidecar.runtime.conftest import on_loop

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

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
    sidecar: Start, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each request is a batch of its own, everybody gets what he gets alone, the short first."""
    encoder, decoder = sequences.recurrent()
    (tmp_path / "model.onnx").write_bytes(encoder.SerializeToString())
    (tmp_path / "decoder.onnx").write_bytes(decoder.SerializeToString())
    settings = {
        "fprocess": f"{sys.executable} -m watchdog_plugin",
        "function_dir": str(tmp_path),
        "carpool_executor": "lazy",
        "carpool_batch_max": "8",
    }
    lengths = [35, 35, 35, 2, 3, 2]
    ended: list[int] = []
    async with sidecar(**settings) as running:

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
