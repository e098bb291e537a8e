"""The binary tensor extension: requests, responses and every kind of invalid request."""

from __future__ import annotations

import json
import math
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from carpool.wire import build_head, parse_head
from tests.watchdog_plugin import models
from watchdog_plugin import Item
from watchdog_plugin.handler_contract import HandlerModule
from watchdog_plugin.onnx.function import OnnxFunction
from watchdog_plugin.onnx.model import OnnxModel
from watchdog_plugin.protocols.tensors import DTYPES

if TYPE_CHECKING:
    from pathlib import Path

INFER = "POST /v2/models/net/infer"
ROWS = np.array([[0.5, -1.0, 2.0, 0.0], [1, 2, 3, 4]], np.float32)
BYTES_OUT = {"parameters": {"binary_data_output": True}}


def build(path: Path) -> OnnxFunction:
    """Return a function with the model at ``path``."""
    return OnnxFunction(OnnxModel(path, 1), HandlerModule(path), "")


@pytest.fixture
def net(tmp_path: Path) -> OnnxFunction:
    """Function with a small network and no code."""
    return build(models.mlp(tmp_path / "model.onnx"))


def tensor(name: str, data: bytes, shape: list[int], datatype: str = "FP32") -> dict[str, Any]:
    """Return an input whose bytes follow the JSON."""
    parameters = {"binary_data_size": len(data)}
    return {"name": name, "shape": shape, "datatype": datatype, "parameters": parameters}


def request(body: Any, tail: bytes = b"", length: str | None = None, line: str = INFER) -> Item:
    """Return a request of JSON and bytes, with a correct length header by default."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    length = str(len(text)) if length is None else length
    headers = [("inference-header-content-length", length)] if length else []
    return Item(memoryview(text + tail), build_head(line, headers), math.inf)


def ask(function: OnnxFunction, *items: Item) -> list[tuple[int, Any, bytes]]:
    """Return status, JSON and the bytes after it for each response to one batch."""
    work = function.decode(items)
    function.run(work)
    found = []
    for status, head, body in function.encode(work):
        headers = dict(parse_head(head).headers)
        size = int(headers.get("inference-header-content-length", len(body)))
        kind = "application/json" if size == len(body) else "application/octet-stream"
        assert kind == headers["content-type"]
        found.append((status, json.loads(bytes(body[:size])), bytes(body[size:])))
    return found


def infer(rows: np.ndarray[Any, Any], **members: Any) -> Item:
    """Return a request with rows for the network as bytes."""
    data = rows.tobytes()
    return request({"inputs": [tensor("x", data, list(rows.shape))], **members}, data)


def identity(path: Path, datatype: str) -> Path:
    """``x`` [batch, 3] -> an equal ``y``, of any datatype."""
    from onnx import helper

    element = helper.np_dtype_to_tensor_dtype(DTYPES[datatype])
    sides = {"x": (element, ["batch", 3])}, {"y": (element, ["batch", 3])}
    return models.save(path, [helper.make_node("Identity", ["x"], ["y"])], *sides)  # type: ignore[arg-type]


NUMBERS = [name for name in DTYPES if name != "BYTES"]


@pytest.mark.parametrize("datatype", NUMBERS)
def test_numbers_round_trip_exactly(tmp_path: Path, datatype: str) -> None:
    """Numbers are exact at any alignment, for one request and for several in one batch."""
    function = build(identity(tmp_path / "m.onnx", datatype))
    random = np.random.default_rng(3)
    dtype = DTYPES[datatype]
    sent = []
    for rows in (1, 3, 2, 1):
        raw = random.integers(0, 2 if datatype == "BOOL" else 100, (rows, 3)).astype(dtype)
        sent.append((raw.tobytes(), [rows, 3]))
    for spaces in range(8):  # of the JSON, which moves the bytes behind it
        items = []
        for data, shape in sent:
            body = {"inputs": [tensor("x", data, shape, datatype)], **BYTES_OUT}
            items.append(request(json.dumps(body).encode() + b" " * spaces, data))
        for answers in (ask(function, *items), [ask(function, item)[0] for item in items]):
            for (data, shape), (status, said, tail) in zip(sent, answers, strict=True):
                (output,) = said["outputs"]
                assert (200, shape, data) == (status, output["shape"], tail)
                assert {"binary_data_size": len(data)} == output["parameters"]
                assert "data" not in output


def test_text_is_prefixed_by_its_length(tmp_path: Path) -> None:
    """Inputs and outputs may hold empty text and characters of several bytes."""
    function = build(models.texts(tmp_path / "t.onnx"))
    data = b"".join(struct.pack("<I", len(t)) + t for t in (b"a", b"", "üß".encode()))
    item = request({"inputs": [tensor("text", data, [3], "BYTES")], **BYTES_OUT}, data)
    ((status, _, tail),) = ask(function, item)
    assert (200, data) == (status, tail)
    ((_, said, _),) = ask(function, request({"inputs": [tensor("text", data, [3], "BYTES")]}, data))
    assert ["a", "", "üß"] == said["outputs"][0]["data"]


def test_bytes_and_json_give_the_same_numbers(net: OnnxFunction) -> None:
    """In one batch, each caller gets its own rows in the requested form."""
    flat = {"name": "x", "shape": [2, 4], "datatype": "FP32", "data": ROWS.ravel().tolist()}
    answers = ask(
        net,
        infer(ROWS),
        infer(ROWS[1:], **BYTES_OUT),
        request({"inputs": [flat], **BYTES_OUT}, length=""),
        infer(ROWS, outputs=[{"name": "y", "parameters": {"binary_data": True}}]),
        infer(ROWS, outputs=[{"name": "y", "parameters": {"binary_data": False}}], **BYTES_OUT),
        request(infer(ROWS).bytes()[: -ROWS.nbytes], ROWS.tobytes(), line="POST /anywhere"),
    )
    assert [200] * 6 == [status for status, _, _ in answers]
    expected = np.array(answers[0][1]["outputs"][0]["data"], np.float32).reshape(2, 3)
    for (_, said, tail), rows in zip(answers, [2, 1, 2, 2, 2, 2], strict=True):
        (output,) = said["outputs"]
        numbers = np.frombuffer(tail, np.float32) if tail else np.array(output["data"], np.float32)
        assert [rows, 3] == output["shape"]
        np.testing.assert_allclose(numbers.reshape(rows, 3), expected[-rows:], rtol=1e-6)
    assert [False, True, True, True, False, False] == [bool(tail) for _, _, tail in answers]


def test_binary_and_json_tensors_can_be_mixed(tmp_path: Path) -> None:
    """Bytes are read and written in the order of the entries."""
    function = build(models.adder(tmp_path / "m.onnx"))
    data = np.array([[3, 4]], np.float32).tobytes()
    plain = {"name": "b", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}
    outputs = [
        {"name": "difference"},
        {"name": "sum", "parameters": {"binary_data": True}},
    ]
    body = {"inputs": [plain, tensor("a", data, [1, 2])], "outputs": outputs}
    ((_, said, tail),) = ask(function, request(body, data))
    assert [2.0, 2.0] == said["outputs"][0]["data"]
    assert [4.0, 6.0] == np.frombuffer(tail, np.float32).tolist()
    both = {"inputs": [tensor("b", data, [1, 2]), tensor("a", data, [1, 2])], **BYTES_OUT}
    ((_, said, tail),) = ask(function, request(both, data * 2))
    assert ["sum", "difference"] == [output["name"] for output in said["outputs"]]
    assert [6.0, 8.0, 0.0, 0.0] == np.frombuffer(tail, np.float32).tolist()


GOOD = ROWS[:1].tobytes()
X = tensor("x", GOOD, [1, 4])
PLAIN = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}


def sized(size: Any) -> dict[str, Any]:
    """Return the input with another size in bytes."""
    return X | {"parameters": {"binary_data_size": size}}


@pytest.mark.parametrize(
    ("item", "told"),
    [
        (request({"inputs": [X]}, GOOD, length=""), "need the header Inference-Header-Content-"),
        (request({"inputs": [X]}, length=""), "has no header Inference-Header-Content-Length"),
        (request({"inputs": [X]}, GOOD, length="-1"), "'-1': expected a number of bytes"),
        (request({"inputs": [X]}, GOOD, length="5, 5"), "'5, 5': expected a number of bytes"),
        (request({"inputs": [X]}, GOOD, length="9" * 99), "expected a number of bytes"),
        (request({"inputs": [X]}, GOOD, length="99999"), "expected at most the body's"),
        (request({"inputs": [X]}, GOOD, length="20"), "the first 20 bytes of the body"),
        (request({"inputs": [X]}, GOOD, length="0"), "the first 0 bytes of the body"),
        (request({"inputs": [X]}, GOOD[:-1]), "binary_data_size is 16, but only 15 bytes"),
        (request({"inputs": [X]}, GOOD + b"abc"), "has 3 bytes after its JSON that no input"),
        (request({"inputs": [PLAIN]}, GOOD), "has 16 bytes after its JSON that no input"),
        (request({"inputs": [sized(12)]}, GOOD[:12]), "is 12, expected 16 for 4 values of FP32"),
        (request({"inputs": [sized(-1)]}, GOOD), "is -1, expected a number of bytes"),
        (request({"inputs": [sized([])]}, GOOD), "is [], expected a number of bytes"),
        (request({"inputs": [sized("16")]}, GOOD), "is '16', expected a number of bytes"),
        (request({"inputs": [X | PLAIN]}, GOOD), "has both data and a binary_data_size"),
        (request({"inputs": [X | {"parameters": 5}]}, GOOD), "parameters is int, expected an"),
        (request({"inputs": [X], "parameters": []}, GOOD), "the request: parameters is list"),
        (
            request({"inputs": [PLAIN | {"parameters": {"shared_memory_region": "r"}}]}),
            "input 'x': the parameter 'shared_memory_region' belongs to an unsupported",
        ),
        (
            infer(ROWS, outputs=[{"name": "y", "parameters": {"classification": "2"}}]),
            "output 'y': classification is '2', expected a number of classes",
        ),
        (infer(ROWS, parameters={"binary_data_output": 1}), "binary_data_output is 1, expected"),
        (
            infer(ROWS, outputs=[{"name": "y", "parameters": {"binary_data": "yes"}}]),
            "binary_data is 'yes', expected true or false",
        ),
        (request({"instances": [[1, 2, 3, 4]]}, GOOD, line="POST /"), "that no input claims"),
    ],
)
def test_inconsistent_request_is_refused(net: OnnxFunction, item: Item, told: str) -> None:
    """The status is 400 with the given and the expected value, and other requests are answered."""
    before, bad, after = ask(net, infer(ROWS), item, infer(ROWS))
    assert (200, 400, 200) == (before[0], bad[0], after[0])
    assert told in bad[1]["error"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\1\0\0",
        b"\1\0\0\0",
        b"\2\0\0\0a",
        b"\1\0\0\0a\0",
        b"\1\0\0\0a\1\0\0\0b",
        b"\xff\xff\xff\xffa",
    ],
)
def test_text_of_wrong_length_is_refused(tmp_path: Path, data: bytes) -> None:
    """Bytes that are not exactly the one expected element are refused."""
    function = build(models.texts(tmp_path / "t.onnx"))
    item = request({"inputs": [tensor("text", data, [1], "BYTES")]}, data)
    ((status, said, _),) = ask(function, item)
    assert (400, True) == (status, "are not 1 elements of BYTES" in said["error"])


def test_values_invalid_for_datatype_are_refused(tmp_path: Path) -> None:
    """A boolean of 2 and text that is not UTF-8 are refused."""
    flags = build(identity(tmp_path / "b.onnx", "BOOL"))
    item = request({"inputs": [tensor("x", b"\0\1\2", [1, 3], "BOOL")]}, b"\0\1\2")
    ((status, said, _),) = ask(flags, item)
    assert (400, True) == (status, "neither 0 nor 1" in said["error"])
    texts = build(models.texts(tmp_path / "t.onnx"))
    item = request({"inputs": [tensor("text", b"\1\0\0\0\xff", [1], "BYTES")]}, b"\1\0\0\0\xff")
    ((status, said, _),) = ask(texts, item)
    assert (400, True) == (status, "element 0 is not UTF-8" in said["error"])


def test_infinity_is_exact_as_bytes(tmp_path: Path) -> None:
    """Infinities, which JSON cannot express, are exact as bytes."""
    function = build(identity(tmp_path / "m.onnx", "FP32"))
    data = np.array([[np.inf, -np.inf, 1]], np.float32).tobytes()
    item = request({"inputs": [tensor("x", data, [1, 3])], **BYTES_OUT}, data)
    assert data == ask(function, item)[0][2]
