"""The gRPC service of a real sidecar, in front of a one-worker server that a test can hold up."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from grpc import StatusCode, aio

from tests.sidecar.runtime.conftest import EXPLAIN, ROOT, on_loop
from tests.sidecar.runtime.grpc_client import called, numbers, raw, typed
from tests.sidecar.runtime.plain_server import plain_server
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.gate import Gate
    from tests.sidecar.runtime.conftest import Sidecar, Start
    from tests.sidecar.runtime.grpc_client import Caller

INFER = "/v2/models/m/infer"
LENGTH = "inference-header-content-length"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Start a server of the protocol over HTTP and return its address."""
    with plain_server("tests.services.flask_oip:app", tmp_path) as address:
        yield address


@asynccontextmanager
async def merging(
    sidecar: Start, server: str, folder: Path, **env: Any
) -> AsyncIterator[tuple[Sidecar, Caller]]:
    """Run a sidecar in front of that server, with a client."""
    wire: dict[str, Any] = {"carpool_wire": "oip", "sidecar_upstreams": server}
    async with called(sidecar, folder, **wire, **env) as both:
        yield both


def row(value: float) -> Any:
    """Return one row of two equal values."""
    return np.full((1, 2), value, np.float32)


async def over_http(running: Sidecar, rows: Any) -> Any:
    """Return output ``y`` for rows sent over HTTP as Triton's client sends them."""
    size = {"binary_data_size": rows.nbytes}
    tensor = {"name": "x", "shape": rows.shape, "datatype": "FP32", "parameters": size}
    asked = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    text = json.dumps(asked, separators=(",", ":")).encode()
    headers = [EXPLAIN, (LENGTH, str(len(text)))]
    body = text + rows.tobytes()
    answer = await running.pool.request("POST", INFER, headers, body, HANG_S)
    assert 200 == answer.status, answer.body
    assert b"9" == answer.header(b"x-carpool-batch")
    outputs = json.loads(answer.body[: int(answer.header(LENGTH.encode()) or b"")])["outputs"]
    assert "y" == outputs[0]["name"]
    return np.frombuffer(answer.body[-rows.nbytes - 4 * len(rows) :][: rows.nbytes], "<f4")


@asynccontextmanager
async def busy(running: Sidecar, gate: Gate) -> AsyncIterator[None]:
    """Hold up the handler for the block; waiting requests are served afterwards."""
    gate.close()
    holding = asyncio.create_task(running.ask(gate.word))
    await running.until_metric("batch_in_flight", 1)
    yield
    gate.open()
    assert 200 == (await holding).status


@on_loop
async def test_grpc_calls_share_batches_with_http_requests(
    sidecar: Start, server: str, gate: Gate, tmp_path: Path
) -> None:
    """Raw, typed and HTTP requests share a batch, and each gets its own rows in its own form."""
    async with merging(sidecar, server, tmp_path, carpool_batch_max="64") as (running, caller):
        explain = ("x-carpool-explain", "1")
        asked = [
            (raw if n % 2 else typed)(np.full((n, 2), n, np.float32), own_id=f"no {n}")
            for n in range(1, 9)
        ]
        *answers, values = await running.together(
            gate,
            *(caller.answered(each, explain) for each in asked),
            over_http(running, np.full((2, 2), 9, np.float32)),
        )
        for n, (message, metadata) in enumerate(answers, start=1):
            assert f"no {n}" == message.id
            assert bool(n % 2) == bool(message.raw_output_contents)
            np.testing.assert_array_equal(np.full((n, 2), 2 * n), numbers(message, "y"))
            np.testing.assert_array_equal(np.full(n, 2 * n), numbers(message, "total"))
            assert "9" == metadata["x-carpool-batch"]
        assert [18.0] * 4 == values.tolist()
        sizes = json.loads((await running.pool.request("GET", "/v2/models/m")).body)["sizes"]
        assert [sum(range(1, 9)) + 2] == sizes


@on_loop
async def test_a_bad_call_fails_alone(
    sidecar: Start, server: str, gate: Gate, tmp_path: Path
) -> None:
    """A bad call gets the function's error text and headers, and its neighbours are answered."""
    async with merging(sidecar, server, tmp_path) as (running, caller):
        first, second, third = await running.together(
            gate, *(inferred(caller, raw(row(value))) for value in (1, -1, 3))
        )
        assert [2, 2] == numbers(first, "y").ravel().tolist()
        assert [6, 6] == numbers(third, "y").ravel().tolist()
        assert StatusCode.INVALID_ARGUMENT == second.code()
        assert "1 of 1 rows are bad" == second.details()
        assert "1" == dict(second.trailing_metadata())["x-own"]


async def inferred(caller: Caller, request: Any) -> Any:
    """Return the outcome of an inference, which begins when this is awaited."""
    return await outcome(caller.infer(request))


async def outcome(call: Any) -> Any:
    """Return the response, or the error in its place."""
    try:
        return await call
    except aio.AioRpcError as error:
        return error


@pytest.mark.slow
@on_loop
async def test_call_deadline_is_enforced_in_queue(
    sidecar: Start, server: str, gate: Gate, tmp_path: Path
) -> None:
    """A call whose time passes in the queue is never sent, and X-Timeout counts as over HTTP."""
    async with merging(sidecar, server, tmp_path, carpool_slo="60s") as (running, caller):
        async with busy(running, gate):
            error = await outcome(caller.infer(raw(row(-1)), timeout_s=0.2))
            assert StatusCode.DEADLINE_EXCEEDED == error.code()
            error = await outcome(caller.infer(raw(row(-1)), ("x-timeout", "100ms")))
            assert StatusCode.DEADLINE_EXCEEDED == error.code()
            assert "the deadline passed before an instance had answered" == error.details()
            await running.until_metric("batch_queue_requests", 0)
        ended = [
            await running.metric(f'batch_requests_total{{state="{state}"}}')
            for state in ("expired", "cancelled", "failed")
        ]
        assert 2 == sum(ended[:2])  # the client counts the same time, and may be first
        assert 0 == ended[2]
        assert [2, 2] == numbers(await caller.infer(raw(row(1))), "y").ravel().tolist()


@pytest.mark.slow
@on_loop
async def test_cancelled_call_leaves_queue_and_is_released(
    sidecar: Start, server: str, gate: Gate, tmp_path: Path
) -> None:
    """A cancelled call leaves the queue, and its memory is released."""
    async with merging(sidecar, server, tmp_path) as (running, caller):
        before = await running.metric("batch_held_bytes")
        async with busy(running, gate):
            call = caller.infer(raw(row(1)))
            waiting = asyncio.ensure_future(outcome(call))
            await running.until_metric("batch_queue_requests", 1)
            assert before < await running.metric("batch_held_bytes")
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await running.until_metric('batch_requests_total{state="cancelled"}', 1)
            assert 0 == await running.metric("batch_queue_requests")
        async with asyncio.timeout(HANG_S):
            while before != await running.metric("batch_held_bytes"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@pytest.mark.slow
@on_loop
async def test_full_queue_refuses_with_retry_time(
    sidecar: Start, server: str, gate: Gate, tmp_path: Path
) -> None:
    """A full queue refuses with RESOURCE_EXHAUSTED and a retry time, separately for each class."""
    limits = {"carpool_batch_max": "1", "carpool_queue_max": "1"}
    async with merging(sidecar, server, tmp_path, **limits) as (running, caller):
        async with busy(running, gate):
            waiting = asyncio.ensure_future(outcome(caller.infer(raw(row(1)))))
            await running.until_metric("batch_queue_requests", 1)
            refused = await outcome(caller.infer(raw(row(1))))
            assert StatusCode.RESOURCE_EXHAUSTED == refused.code()
            assert "1 requests are already waiting" == refused.details()
            assert int(dict(refused.trailing_metadata())["retry-after"]) >= 1
            other = caller.infer(raw(row(2)), ("x-carpool-class", "batch"))
            background = asyncio.ensure_future(outcome(other))
            await running.until_metric("batch_queue_requests", 2)
        assert [2, 2] == numbers(await waiting, "y").ravel().tolist()
        assert [4, 4] == numbers(await background, "y").ravel().tolist()


@pytest.mark.slow
@on_loop
async def test_large_messages_have_a_limit(sidecar: Start, server: str, tmp_path: Path) -> None:
    """Messages above gRPC's usual 4 MiB are served, and those above the sidecar's limit refused."""
    limit = {"sidecar_body_max_bytes": str(5_000_000), "carpool_batch_max": "4"}
    async with merging(sidecar, server, tmp_path, **limit) as (running, caller):
        rows = np.random.default_rng(3).standard_normal((1, 1_200_000)).astype(np.float32)
        for request in (raw(rows), typed(rows)):
            message = await caller.infer(request)
            np.testing.assert_array_equal(rows * 2, numbers(message, "y"))
        for length, text in ((1_260_000, "larger"), (1_700_000, "larger than max")):
            huge = np.zeros((1, length), np.float32)
            for request in (raw(huge), typed(huge)):
                error = await outcome(caller.infer(request))
                assert StatusCode.RESOURCE_EXHAUSTED == error.code()
                assert text in error.details()
        assert [2, 2] == numbers(await caller.infer(raw(row(1))), "y").ravel().tolist()
        assert 0 == await running.metric("batch_queue_requests")


@pytest.mark.slow
@on_loop
async def test_malformed_call_gets_error_that_says_what_was_expected(
    sidecar: Start, server: str, tmp_path: Path
) -> None:
    """Malformed messages, methods, metadata and contents get errors that say what was expected."""
    async with merging(sidecar, server, tmp_path) as (_, caller):
        method = "/inference.GRPCInferenceService/ModelInfer"
        noise = await outcome(caller.channel.unary_unary(method)(b"\xff\xff\xff", timeout=HANG_S))
        assert StatusCode.INVALID_ARGUMENT == noise.code()
        assert "not an inference.ModelInferRequest" in noise.details()
        unknown = await outcome(
            caller.channel.unary_unary("/inference.GRPCInferenceService/ModelConfig")(b"")
        )
        assert StatusCode.UNIMPLEMENTED == unknown.code()
        short = raw(row(1))
        short.raw_input_contents[0] = b"\0" * 7
        for request, metadata, text in (
            (short, (), "raw_input_contents[0] has 7 bytes, expected 8 for 2 values of FP32"),
            (raw(row(1)), (("x-timeout", "soon"),), "X-Timeout = 'soon': expected a duration"),
            (raw(row(1)), (("x-carpool-class", "gold"),), "expected interactive or batch"),
            (raw(row(1), model=""), (), "the model's name is empty"),
        ):
            error = await outcome(caller.infer(request, *metadata))
            assert StatusCode.INVALID_ARGUMENT == error.code()
            assert text in error.details()


@pytest.mark.slow
@on_loop
async def test_response_outside_protocol_is_internal_error(
    sidecar: Start, gate: Gate, tmp_path: Path
) -> None:
    """A response that is not one of the protocol is an INTERNAL error, even after a restart."""
    async with called(sidecar, tmp_path, carpool_slo="60s") as (running, caller):
        echoed = await outcome(caller.infer(raw(row(1))))  # its own body
        assert StatusCode.INTERNAL == echoed.code()
        assert "the function's answer is not one of the protocol" in echoed.details()
        gate.close()
        holding = asyncio.create_task(running.ask(gate.word))
        await running.until_metric("batch_in_flight", 1)
        waiting = asyncio.create_task(outcome(caller.infer(raw(row(1)))))
        await running.until_metric("batch_queue_requests", 1)
        os.kill(running.handler_pid(), signal.SIGKILL)
        gate.open()
        assert 200 == (await holding).status
        assert StatusCode.INTERNAL == (await waiting).code()  # answered by its successor


@pytest.mark.slow
@on_loop
async def test_function_that_fails_to_start_is_live_but_unavailable(
    sidecar: Start, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A function that does not start is live, not ready, and its calls are UNAVAILABLE."""
    from tritonclient.grpc import service_pb2 as pb

    async with called(sidecar, tmp_path, ready=False, start_exit="1") as (running, caller):
        await wait_until_async(running.listening)
        wait = {"wait_for_ready": True, "timeout": HANG_S}
        assert (await caller.stub.ServerLive(pb.ServerLiveRequest(), **wait)).live
        assert not (await caller.stub.ServerReady(pb.ServerReadyRequest(), **wait)).ready
        asked = pb.ModelReadyRequest(name="m")
        assert not (await caller.stub.ModelReady(asked, **wait)).ready
        error = await outcome(caller.infer(raw(row(1))))
        assert StatusCode.UNAVAILABLE == error.code()
        assert "model.onnx is not there" in error.details()
        assert "true" == dict(error.trailing_metadata())["x-carpool-not-begun"]
    capfd.readouterr()


@pytest.mark.slow
@on_loop
async def test_sigterm_answers_calls_in_flight(
    sidecar: Start, server: str, gate: Gate, tmp_path: Path
) -> None:
    """After SIGTERM the sidecar takes no new calls, answers those in flight and exits with 0."""
    async with merging(sidecar, server, tmp_path) as (running, caller):
        gate.close()
        holding = asyncio.create_task(running.ask(gate.word))
        await running.until_metric("batch_in_flight", 1)
        waiting = asyncio.ensure_future(outcome(caller.infer(raw(row(4)))))
        await running.until_metric("batch_queue_requests", 1)
        running.process.send_signal(signal.SIGTERM)
        await wait_until_async(lambda: not running.listening())
        gate.open()
        assert [8, 8] == numbers(await waiting, "y").ravel().tolist()
        assert 200 == (await holding).status
        await wait_until_async(lambda: running.process.poll() is not None)
        assert 0 == running.process.returncode


def ended(tmp_path: Path, code: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a sidecar that is expected to exit at its start."""
    return subprocess.run(
        [sys.executable, "-c", f"import sys; {code}sys.exit(main([]))"],
        env={"PYTHONPATH": str(ROOT), "sidecar_listen": "unix:s", **env},
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )


@pytest.mark.parametrize("missing", ["grpc", "google.protobuf"])
def test_a_missing_extra_is_named(missing: str, tmp_path: Path) -> None:
    """A missing package is reported at the start with the extra that installs it."""
    code = f"sys.modules[{missing!r}] = None; from sidecar.app import main; "
    done = ended(tmp_path, code, sidecar_grpc="unix:g", sidecar_upstreams="127.0.0.1:1")
    assert 2 == done.returncode
    assert 'pip install "carpool[grpc]"' in done.stderr


def test_error_names_setting_of_address_in_use(tmp_path: Path) -> None:
    """An address in use is reported with the setting."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        code = "from sidecar.app import main; "
        done = ended(tmp_path, code, sidecar_grpc=address, sidecar_upstreams="127.0.0.1:1")
    assert 2 == done.returncode
    assert f"sidecar_grpc = '{address}': expected an address that is free" in done.stderr


def test_sidecar_without_grpc_does_not_import_package() -> None:
    """Without gRPC the sidecar does not import the package, as it belongs to an extra."""
    code = "import sys, sidecar.serving; sys.exit('grpc' in sys.modules)"
    env = {"PYTHONPATH": str(ROOT)}
    assert 0 == subprocess.run([sys.executable, "-c", code], env=env, check=False).returncode
