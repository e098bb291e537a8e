"""A sidecar in front of a server of the Open Inference Protocol, also with Triton's own client."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tritonclient import http as triton

from tests.ports import free_port
from tests.sidecar.runtime.conftest import EXPLAIN
from tests.sidecar.runtime.plain_server import plain_server
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from pathlib import Path

    from carpool.http.client import Response
    from tests.gate import Gate
    from tests.sidecar.runtime.conftest import Sidecar, Start

INFER = "/v2/models/m/infer"
JSON_TYPE = ("content-type", "application/json")
LENGTH = "inference-header-content-length"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Start the server with one worker and return its address."""
    with plain_server("tests.services.flask_oip:app", tmp_path) as address:
        yield address


@contextlib.asynccontextmanager
async def merging(sidecar: Start, server: str) -> AsyncIterator[Sidecar]:
    """Run a sidecar in front of the server."""
    async with sidecar(carpool_wire="oip", sidecar_upstreams=server) as running:
        yield running


async def infer(running: Sidecar, *rows: Sequence[float], **others: object) -> Response:
    """Send one request with these rows."""
    data = [value for row in rows for value in row]
    tensor = {"name": "x", "shape": [len(rows), len(rows[0])], "datatype": "FP32", "data": data}
    body = json.dumps({"inputs": [tensor], **others})
    return await running.ask(body, EXPLAIN, JSON_TYPE, target=INFER)


async def sizes(running: Sidecar) -> list[int]:
    """Return the number of rows of each request that reached the server."""
    answer = await running.pool.request("GET", "/v2/models/m", timeout_s=HANG_S)
    assert 200 == answer.status
    found: list[int] = json.loads(answer.body)["sizes"]
    return found


def outputs(answer: Response) -> dict[str, Any]:
    """Return the tensors of a successful response."""
    assert 200 == answer.status, answer.body
    return {tensor["name"]: tensor["data"] for tensor in json.loads(answer.body)["outputs"]}


@pytest.mark.slow
def test_requests_are_merged_and_response_is_divided(
    sidecar: Start, server: str, gate: Gate
) -> None:
    """Requests are merged into one, and each caller gets its own rows and ID."""

    async def run() -> None:
        async with merging(sidecar, server) as running:
            answers = await running.together(
                gate,
                *(infer(running, *[[n, k] for k in range(n)], id=f"no {n}") for n in range(1, 6)),
            )
            for n, answer in enumerate(answers, start=1):
                expected = {
                    "y": [value for k in range(n) for value in (2 * n, 2 * k)],
                    "total": [n + k for k in range(n)],
                }
                assert expected == outputs(answer)
                assert f"no {n}" == json.loads(answer.body)["id"]
                assert b"5" == answer.header(b"x-carpool-batch")
            assert [15] == await sizes(running)

    asyncio.run(run())


def test_one_bad_request_fails_alone(sidecar: Start, server: str, gate: Gate) -> None:
    """The bad request gets the server's own error, and its fifteen neighbours are answered."""

    async def run() -> None:
        async with merging(sidecar, server) as running:
            rows = [*range(7), -1, *range(8, 16)]
            answers = await running.together(gate, *(infer(running, [row]) for row in rows))
            for row, answer in zip(rows, answers, strict=True):
                if row < 0:
                    assert 422 == answer.status
                    assert {"error": "1 of 1 rows are bad"} == json.loads(answer.body)
                    assert b"1" == answer.header(b"x-own")
                else:
                    assert {"y": [2 * row], "total": [row]} == outputs(answer)
            assert 16 == (await sizes(running))[0]

    asyncio.run(run())


@pytest.mark.slow
def test_head_response_has_content_length_of_get(sidecar: Start, server: str) -> None:
    """HEAD has the content length of GET, or none where the server does not know it."""

    async def run() -> None:
        async with merging(sidecar, server) as running:
            for target, known in (("/v2/models/m", True), ("/pieces", False)):
                get = await running.pool.request("GET", target, timeout_s=HANG_S)
                head = await running.pool.request("HEAD", target, timeout_s=HANG_S)
                assert (200, 200, b"") == (get.status, head.status, head.body)
                expected = str(len(get.body)).encode() if known else None
                assert expected == head.header(b"content-length")

    asyncio.run(run())


@pytest.mark.slow
def test_requests_with_surplus_and_missing_values_are_not_merged(
    sidecar: Start, server: str, gate: Gate
) -> None:
    """Requests with a value too many and one too few are not merged into a valid request."""

    async def run() -> None:
        async with merging(sidecar, server) as running:

            async def ask(count: int) -> Response:
                tensor = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1.0] * count}
                return await running.ask(json.dumps({"inputs": [tensor]}), JSON_TYPE, target=INFER)

            answers = await running.together(gate, *(ask(count) for count in (3, 2, 1, 2)))
            assert [500, 200, 500, 200] == [answer.status for answer in answers]
            assert [2] == await sizes(running)

    asyncio.run(run())


@pytest.mark.slow
def test_binary_tensors_are_merged(sidecar: Start, server: str, gate: Gate) -> None:
    """Binary tensors are merged, and each response has its own JSON length."""

    async def run() -> None:
        async with merging(sidecar, server) as running:

            async def ask(n: int) -> Response:
                array = np.full((n, 3), n, "<f4")
                size = {"binary_data_size": array.nbytes}
                tensor = {"name": "x", "shape": [n, 3], "datatype": "FP32", "parameters": size}
                text = json.dumps({"inputs": [tensor], "id": "i" * n}).encode()
                headers = [EXPLAIN, (LENGTH, str(len(text)))]
                body = text + array.tobytes()
                return await running.pool.request("POST", INFER, headers, body, HANG_S)

            answers = await running.together(gate, *(ask(n) for n in range(1, 5)))
            for n, answer in enumerate(answers, start=1):
                assert 200 == answer.status, answer.body
                length = int(answer.header(LENGTH.encode()) or b"")
                assert "i" * n == json.loads(answer.body[:length])["id"]
                expected = (
                    np.full(3 * n, 2.0 * n, "<f4").tobytes() + np.full(n, 3.0 * n, "<f4").tobytes()
                )
                assert expected == answer.body[length:]
                assert b"4" == answer.header(b"x-carpool-batch")
            assert [10] == await sizes(running)

    asyncio.run(run())


@pytest.mark.parametrize("binary", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_triton_client_reads_responses(
    sidecar: Start,
    server: str,
    binary: bool,  # noqa: FBT001
) -> None:
    """Triton's client reads responses with binary tensors, its default, and with JSON ones."""
    where = f"127.0.0.1:{free_port()}"

    def call(value: float) -> list[list[float]]:
        client = triton.InferenceServerClient(where)
        given = triton.InferInput("x", [2, 2], "FP32")
        given.set_data_from_numpy(np.full((2, 2), value, np.float32), binary_data=binary)
        wanted = [triton.InferRequestedOutput("y", binary_data=binary)]
        found = client.infer("m", [given], outputs=wanted, request_id=f"{value}")
        assert f"{value}" == found.get_response()["id"]
        rows: list[list[float]] = found.as_numpy("y").tolist()
        return rows

    def ready() -> bool:
        with contextlib.suppress(OSError):
            return bool(triton.InferenceServerClient(where).is_server_ready())
        return False

    async def run() -> None:
        env = {"carpool_wire": "oip", "sidecar_upstreams": server, "sidecar_listen": where}
        async with sidecar(ready=False, **env):
            await asyncio.to_thread(wait_until, ready, what="the sidecar")
            found = await asyncio.gather(*(asyncio.to_thread(call, n) for n in (1.0, 2.0, 3.0)))
            assert [[[2 * n] * 2] * 2 for n in (1.0, 2.0, 3.0)] == found

    asyncio.run(run())
