"""Tests of Triton's Python client with functions, through the provider and the sidecar."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tritonclient import http as triton
from tritonclient.utils import InferenceServerException

from tests.docs.snippets import take_one
from tests.faas_stack.test_up import carpool
from tests.waiting import HANG_S
from tests.watchdog_plugin import models

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.xdist_group("triton client")  # one worker starts the stack

Rows = np.ndarray[Any, np.dtype[Any]]

PAGE = "docs/handler.md"
CLIENT = take_one(PAGE, "^import numpy", within="tritonclient.http", language="python")
CURL = take_one(PAGE, r"^\$ curl \$URL -d")
STACK = """\
provider: {name: openfaas}
functions:
  net: &function
    lang: python3-onnx-batch
    handler: ./net
    image: net:latest
    labels:
      com.carpool.slo: 60s
      com.carpool.batch.policy: fixed
      com.carpool.batch.wait: 5ms
      com.carpool.batch.max: "16"
      com.carpool.compress.from: "1000"
  words:
    <<: *function
    handler: ./words
    image: words:latest
"""
CALLERS = 8


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a stack with two models and no code."""
    folder: Path = tmp_path_factory.mktemp("stack")
    models.mlp(folder / "net" / "model.onnx")
    models.texts(folder / "words" / "model.onnx")
    (folder / "stack.yaml").write_text(STACK)
    with carpool(folder, "up", "--port", "0", "--json", "--no-watchdog") as up:
        yield up.result()["url"].removeprefix("http://")


def client(host: str, function: str) -> triton.InferenceServerClient:
    """Return a client with only the function's address."""
    return triton.InferenceServerClient(url=f"{host}/function/{function}", concurrency=CALLERS)


def given(name: str, array: Rows, datatype: str, *, binary: bool) -> triton.InferInput:
    """Return an input as the client sends it."""
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, binary_data=binary)
    return made


def test_server_and_model_are_live_ready_and_described(host: str) -> None:
    """The server and the model are live, ready and described."""
    with client(host, "net") as net:
        assert net.is_server_live()
        assert net.is_server_ready()
        assert net.is_model_ready("net")
        assert net.is_model_ready("net", "1")
        assert not net.is_model_ready("net", "2")
        assert "binary_tensor_data" in net.get_server_metadata()["extensions"]
        about = net.get_model_metadata("net")
        assert [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}] == about["inputs"]
        assert [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}] == about["outputs"]


@pytest.mark.parametrize("sent", [True, False], ids=["bytes in", "JSON in"])
@pytest.mark.parametrize("wanted", [True, False, None], ids=["bytes out", "JSON out", "any out"])
def test_concurrent_callers_get_their_own_rows_in_every_format(
    host: str, *, sent: bool, wanted: bool | None
) -> None:
    """Concurrent callers each get the results of their own rows, in every format."""
    outputs = None
    if wanted is not None:
        outputs = [triton.InferRequestedOutput("y", binary_data=wanted)]
    random = np.random.default_rng(5)
    asked = [random.standard_normal((1 + i % 3, 4)).astype(np.float32) for i in range(24)]
    with client(host, "net") as net:

        def start(rows: Rows) -> triton.InferAsyncRequest:
            inputs = [given("x", rows, "FP32", binary=sent)]
            return net.async_infer("net", inputs, outputs=outputs, request_id="7")

        def result(pending: triton.InferAsyncRequest) -> Rows:
            answer = pending.get_result()
            assert "7" == answer.get_response()["id"]
            assert (wanted is not False) == ("data" not in answer.get_output("y"))
            numbers: Rows = answer.as_numpy("y")
            return numbers

        together = [result(pending) for pending in [start(rows) for rows in asked]]
        for rows, numbers in zip(asked, together, strict=True):
            assert ("float32", (len(rows), 3)) == (numbers.dtype.name, numbers.shape)
            inputs = [given("x", rows, "FP32", binary=sent)]
            alone = net.infer("net", inputs, outputs=outputs).as_numpy("y")
            np.testing.assert_allclose(numbers, alone, rtol=1e-5)
        assert len({numbers.tobytes() for numbers in together}) == len(asked)


@pytest.mark.parametrize("sent", [True, False], ids=["bytes in", "JSON in"])
def test_bytes_tensors_work_in_both_formats(host: str, *, sent: bool) -> None:
    """BYTES tensors work in both formats."""
    words = np.array(["a", "", "Käse"], object)
    with client(host, "words") as function:
        result = function.infer("words", [given("text", words, "BYTES", binary=sent)])
    assert ["a", "", "Käse"] == [text.decode() for text in result.as_numpy("same")]


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_compressed_request_gets_same_response(host: str, coding: str) -> None:
    """A compressed request has the same response as a plain one."""
    rows = np.ones((2, 4), np.float32)
    with client(host, "net") as net:
        plain, compressed = (
            net.infer(
                "net", [given("x", rows, "FP32", binary=True)], request_compression_algorithm=c
            )
            for c in (None, coding)
        )
    np.testing.assert_array_equal(plain.as_numpy("y"), compressed.as_numpy("y"))


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_compressed_response_is_decoded(host: str, coding: str) -> None:
    """The client decodes compressed responses, including tensors as bytes."""
    rows = np.random.default_rng(4).standard_normal((300, 4)).astype(np.float32)
    with client(host, "net") as net:
        plain, compressed = (
            net.infer(
                "net", [given("x", rows, "FP32", binary=True)], response_compression_algorithm=c
            )
            for c in (None, coding)
        )
    np.testing.assert_array_equal(plain.as_numpy("y"), compressed.as_numpy("y"))


def test_other_model_names_are_404(host: str) -> None:
    """A function's model has the function's name, and other names are a 404."""
    right = given("x", np.ones((1, 4), np.float32), "FP32", binary=True)
    with client(host, "net") as net:
        with pytest.raises(InferenceServerException, match="serves 'net'") as raised:
            net.infer("nope", [right])
        assert "404" == raised.value.status()
        assert not net.is_model_ready("nope")


@pytest.mark.parametrize("asked", [{"priority": 1}, {"sequence_id": 7, "sequence_start": True}])
def test_unsupported_parameters_are_refused_by_name(host: str, asked: dict[str, Any]) -> None:
    """Unsupported parameters are refused by name instead of being ignored."""
    right = given("x", np.ones((1, 4), np.float32), "FP32", binary=True)
    with client(host, "net") as net:
        with pytest.raises(InferenceServerException, match=min(asked)) as raised:
            net.infer("net", [right], **asked)
        assert "400" == raised.value.status()


def test_a_timeout_is_a_deadline(host: str) -> None:
    """A timeout is a deadline in microseconds: one has always passed, and a minute has not."""
    right = given("x", np.ones((1, 4), np.float32), "FP32", binary=True)
    with client(host, "net") as net:
        assert net.infer("net", [right], timeout=60_000_000).as_numpy("y") is not None
        with pytest.raises(InferenceServerException, match="deadline") as raised:
            net.infer("net", [right], timeout=1)
        assert "504" == raised.value.status()


def test_errors_reach_the_client(host: str) -> None:
    """Errors reach the client as its own exception, with status and reason."""
    wrong = given("x", np.ones((1, 5), np.float32), "FP32", binary=True)
    with client(host, "net") as net:
        with pytest.raises(InferenceServerException, match=r"has the shape \[1, 5\]") as raised:
            net.infer("net", [wrong])
        assert "400" == raised.value.status()
        right = given("text", np.array(["a"], object), "BYTES", binary=True)
        ranked = triton.InferRequestedOutput("same", class_count=2)
        with client(host, "words") as words, pytest.raises(InferenceServerException, match="rows"):
            words.infer("words", [right], outputs=[ranked])


@pytest.mark.parametrize("binary", [True, False], ids=["bytes out", "JSON out"])
def test_each_row_has_its_largest_classes(host: str, *, binary: bool) -> None:
    """Each row has its own largest classes, largest first, as texts of value and index."""
    rows = np.random.default_rng(3).standard_normal((3, 4)).astype(np.float32)
    with client(host, "net") as net:
        inputs = [given("x", rows, "FP32", binary=True)]
        values = net.infer("net", inputs).as_numpy("y")
        wanted = triton.InferRequestedOutput("y", binary_data=binary, class_count=2)
        result = net.infer("net", inputs, outputs=[wanted])
    assert "BYTES" == result.get_output("y")["datatype"]
    expected = [[f"{row[at]:f}:{at}" for at in np.argsort(-row)[:2]] for row in values]
    found = [
        [text if isinstance(text, str) else text.decode() for text in row]
        for row in result.as_numpy("y")
    ]
    assert [[at.rpartition(":")[2] for at in row] for row in expected] == [
        [at.rpartition(":")[2] for at in row] for row in found
    ]
    np.testing.assert_allclose(
        [[float(at.partition(":")[0]) for at in row] for row in expected],
        [[float(at.partition(":")[0]) for at in row] for row in found],
        atol=2e-6,
    )


def test_configuration_has_row_dimensions(host: str) -> None:
    """The configuration has the dimensions of a row, with and without the version."""
    with client(host, "net") as net:
        config = net.get_model_config("net")
        assert config == net.get_model_config("net", "1")
    assert ("net", "onnxruntime", 16) == tuple(
        config[key] for key in ("name", "backend", "max_batch_size")
    )
    assert [{"name": "x", "data_type": "TYPE_FP32", "dims": [4]}] == config["input"]
    assert [{"name": "y", "data_type": "TYPE_FP32", "dims": [3]}] == config["output"]


def test_statistics_count_requests_and_executions(host: str) -> None:
    """Statistics count rows, requests, failures, and executions by batch size."""
    good = given("x", np.ones((2, 4), np.float32), "FP32", binary=True)
    bad = given("x", np.ones((1, 5), np.float32), "FP32", binary=True)
    with client(host, "net") as net:
        (before,) = net.get_inference_statistics("net")["model_stats"]
        for _ in range(3):
            net.infer("net", [good])
        with pytest.raises(InferenceServerException):
            net.infer("net", [bad])
        (after,) = net.get_inference_statistics("net", "1")["model_stats"]
        assert [after] == net.get_inference_statistics()["model_stats"]
    assert 6 == after["inference_count"] - before["inference_count"]
    assert 3 == after["execution_count"] - before["execution_count"]
    for name, expected in (("success", 3), ("fail", 1), ("compute_infer", 3), ("queue", 3)):
        counts = [each["inference_stats"][name] for each in (before, after)]
        assert expected == counts[1]["count"] - counts[0]["count"]
        assert counts[0]["ns"] < counts[1]["ns"]
    assert after["last_inference"] > 1e12
    assert after["inference_count"] == sum(
        each["batch_size"] * each["compute_infer"]["count"] for each in after["batch_stats"]
    )


def test_repository_lists_model_and_refuses_changes(host: str) -> None:
    """The repository lists the model; loading it changes nothing, and changes are refused."""
    with client(host, "net") as net:
        listed = [{"name": "net", "version": "1", "state": "READY", "reason": ""}]
        assert listed == net.get_model_repository_index()
        net.load_model("net")
        assert listed == net.get_model_repository_index()
        for call, arguments in (
            (net.load_model, {"config": '{"max_batch_size": 1}'}),
            (net.unload_model, {}),
        ):
            with pytest.raises(InferenceServerException, match="function") as raised:
                call("net", **arguments)
            assert "400" == raised.value.status()
        with pytest.raises(InferenceServerException, match="not known") as raised:
            net.load_model("nope")
        assert "404" == raised.value.status()
        assert net.is_model_ready("net")


def test_documented_client_code_runs(host: str) -> None:
    """The code in the documentation runs, and the model returns three numbers per row."""
    names: dict[str, Any] = {}
    exec(CLIENT.replace("127.0.0.1:8080", host), names)
    assert (1, 3) == names["y"].shape
    names["client"].close()


def test_documented_requests_get_shown_responses(host: str) -> None:
    """The commands in the documentation run, with responses that differ only in their numbers."""
    for asked in CURL.split("$ ")[1:]:
        command, shown = asked[: asked.rindex("}'") + 2], asked[asked.rindex("}'") + 2 :]
        done = subprocess.run(
            ["bash", "-euc", f"URL=http://{host}/function/net\n{command}"],
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )
        assert shape(json.loads(shown)) == shape(json.loads(done.stdout))


def shape(value: Any) -> Any:
    """Return a document with 0.0 in place of each fraction."""
    if isinstance(value, dict):
        return {name: shape(member) for name, member in value.items()}
    if isinstance(value, list):
        return [shape(member) for member in value]
    return 0.0 if isinstance(value, float) else value
