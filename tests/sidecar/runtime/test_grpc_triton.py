"""Triton's own gRPC client against sidecars with a model and no code."""

from __future__ import annotations

import asyncio
import queue
import sys
from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tritonclient import grpc as triton
from tritonclient.utils import InferenceServerException

from tests.sidecar.runtime.conftest import on_loop
from tests.sidecar.runtime.grpc_client import called, raw, typed
from tests.waiting import HANG_S
from tests.watchdog_plugin import models

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.sidecar.runtime.conftest import Sidecar, Start

Rows = np.ndarray[Any, np.dtype[Any]]
CALLERS, CALLS, BATCH = 8, 16, 16


def given(name: str, array: Rows, datatype: str) -> triton.InferInput:
    """Return an input as the client sends it."""
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array)
    return made


@asynccontextmanager
async def serving(sidecar: Start, folder: Path, **env: Any) -> AsyncIterator[tuple[Sidecar, str]]:
    """Run a sidecar whose model is in ``folder`` and yield it with its address."""
    command: dict[str, Any] = {
        "fprocess": f"{sys.executable} -m watchdog_plugin",
        "function_dir": str(folder),
    }
    async with called(sidecar, folder, OPENFAAS_NAME="net", **command, **env) as (running, _):
        yield running, f"unix:{folder}/grpc.sock"


def all_at_once(address: str) -> None:
    """Send concurrent calls from many clients and check that each gets its own numbers."""
    found: queue.SimpleQueue[tuple[int, Any, Any]] = queue.SimpleQueue()
    with ExitStack() as stack:
        clients = [
            stack.enter_context(triton.InferenceServerClient(address)) for _ in range(CALLERS)
        ]
        for number in range(CALLERS * CALLS):

            def done(result: Any, error: Any, number: int = number) -> None:
                found.put((number, result, error))

            rows = np.full((1, 3), number, np.int64)
            clients[number % CALLERS].async_infer("net", [given("x", rows, "INT64")], done)
        answers = [found.get(timeout=HANG_S) for _ in range(CALLERS * CALLS)]
    assert set(range(CALLERS * CALLS)) == {number for number, _, _ in answers}
    for number, result, error in answers:
        assert error is None
        assert [[2 * number] * 3] == result.as_numpy("y").tolist()


@on_loop
async def test_calls_of_many_clients_fill_batches(sidecar: Start, tmp_path: Path) -> None:
    """With a policy that sends only full batches, the calls of many clients fill all of them."""
    models.doubler(tmp_path / "model.onnx")
    policy = {"carpool_batch_policy": "fixed", "carpool_batch_wait": "1h"}
    async with serving(sidecar, tmp_path, carpool_batch_max=str(BATCH), **policy) as both:
        running, address = both
        await asyncio.to_thread(all_at_once, address)
        full = await running.metric('batch_closed_total{reason="full"}')
        assert CALLERS * CALLS // BATCH == full


def about_the_model(address: str) -> None:
    """Check what the client asks before it infers."""
    with triton.InferenceServerClient(address) as net:
        assert net.is_server_live()
        assert net.is_server_ready()
        assert net.is_model_ready("net")
        assert net.is_model_ready("net", "1")
        assert not net.is_model_ready("net", "2")
        assert not net.is_model_ready("nope")
        server = net.get_server_metadata(as_json=True)
        assert ["binary_tensor_data", "classification"] == server["extensions"]
        about = net.get_model_metadata("net", as_json=True)
        assert [{"name": "x", "datatype": "FP32", "shape": ["-1", "4"]}] == about["inputs"]
        assert [{"name": "y", "datatype": "FP32", "shape": ["-1", "3"]}] == about["outputs"]
        with pytest.raises(InferenceServerException, match="is not known") as raised:
            net.get_model_metadata("nope")
        assert "StatusCode.NOT_FOUND" == raised.value.status()


def inferring(address: str) -> None:
    """Check numbers, classification, parameters and refusals."""
    rows = np.random.default_rng(3).standard_normal((3, 4)).astype(np.float32)
    with triton.InferenceServerClient(address) as net:
        inputs = [given("x", rows, "FP32")]
        result = net.infer("net", inputs, request_id="7", model_version="1")
        values = result.as_numpy("y")
        assert ("7", "1") == (result.get_response().id, result.get_response().model_version)
        ranked = net.infer(
            "net", inputs, outputs=[triton.InferRequestedOutput("y", class_count=2)]
        ).as_numpy("y")
        largest = [[int(text.rpartition(b":")[2]) for text in row] for row in ranked]
        assert np.argsort(-values)[:, :2].tolist() == largest
        zipped = net.infer("net", inputs, compression_algorithm="gzip")
        np.testing.assert_array_equal(values, zipped.as_numpy("y"))
        assert net.infer("net", inputs, timeout=60_000_000).as_numpy("y") is not None
        wrong = [given("x", np.ones((1, 5), np.float32), "FP32")]
        for asked, text, status in (
            ({"inputs": wrong}, r"has the shape \[1, 5\]", "INVALID_ARGUMENT"),
            ({"inputs": inputs, "priority": 1}, "priority", "INVALID_ARGUMENT"),
            ({"inputs": inputs, "timeout": 1}, "deadline", "DEADLINE_EXCEEDED"),
            ({"inputs": inputs, "model_version": "2"}, "is not known", "NOT_FOUND"),
        ):
            with pytest.raises(InferenceServerException, match=text) as raised:
                net.infer("net", **asked)
            assert f"StatusCode.{status}" == raised.value.status()


@on_loop
async def test_triton_client_gets_same_responses_as_over_http(
    sidecar: Start, tmp_path: Path
) -> None:
    """Readiness, metadata, all forms of inference and errors are answered as over HTTP."""
    models.mlp(tmp_path / "model.onnx")
    async with serving(sidecar, tmp_path) as (_, address):
        await asyncio.to_thread(about_the_model, address)
        await asyncio.to_thread(inferring, address)


def words(address: str) -> None:
    """Check that the client sends and reads BYTES."""
    sent = np.array(["a", "", "Käse"], object)
    with triton.InferenceServerClient(address) as net:
        found = net.infer("net", [given("text", sent, "BYTES")]).as_numpy("same")
    assert ["a", "", "Käse"] == [text.decode() for text in found]


@on_loop
async def test_text_of_any_length_is_returned_unchanged(sidecar: Start, tmp_path: Path) -> None:
    """Text of any length is returned unchanged."""
    models.texts(tmp_path / "model.onnx")
    async with serving(sidecar, tmp_path) as (_, address):
        await asyncio.to_thread(words, address)


STREAMS = """
import threading

stream_paths = ["/v2/models/net/infer"]

def handle_batch(items):
    return [{} for _ in items]

def stream(item):
    while True:  # until it is closed
        yield "more"
        threading.Event().wait(0.01)
"""


@on_loop
async def test_streamed_response_is_refused_over_grpc(sidecar: Start, tmp_path: Path) -> None:
    """A streamed response is refused with a hint to use HTTP, and its generator is closed."""
    (tmp_path / "handler.py").write_text(STREAMS)
    command: dict[str, Any] = {
        "fprocess": f"{sys.executable} -m watchdog_plugin",
        "function_dir": str(tmp_path),
    }
    async with called(sidecar, tmp_path, **command) as (running, caller):
        for request in (raw, typed):
            call = caller.infer(request(np.ones((1, 2), np.float32), model="net"))
            assert "UNIMPLEMENTED" == (await call.code()).name
            assert "call it over HTTP" in await call.details()
        await running.until_metric('batch_streams_ended_total{how="caller_left"}', 2)
