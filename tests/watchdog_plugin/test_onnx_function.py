"""Requests to an ONNX function: protocols, the author's hooks and invalid requests."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from carpool.wire import CALLED_HEADER, build_head
from tests.watchdog_plugin import models
from watchdog_plugin import Item, ItemError, Reply
from watchdog_plugin.handler_contract import HandlerModule
from watchdog_plugin.onnx.function import OnnxFunction
from watchdog_plugin.onnx.model import OnnxModel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

INFER = "POST /v2/models/net/infer"
ROW = [0.5, -1.0, 2.0, 0.0]
X = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": ROW}


def build(
    path: Path,
    preprocess: Callable[[Item], object] | None = None,
    postprocess: Callable[[Any], object] | None = None,
    name: str = "",
) -> OnnxFunction:
    """Return a function with the model at ``path``."""
    author = HandlerModule(path, preprocess=preprocess, postprocess=postprocess)
    return OnnxFunction(OnnxModel(path, 1), author, name)


@pytest.fixture
def net(tmp_path: Path) -> OnnxFunction:
    """Function with a small network and no code."""
    return build(models.mlp(tmp_path / "model.onnx"))


def ask(
    function: OnnxFunction, *requests: tuple[str, Any], headers: Sequence[tuple[str, str]] = ()
) -> list[tuple[int, Any]]:
    """Return status and decoded body of each response to one batch of (first line, body)."""
    items = [
        Item(
            memoryview(body if isinstance(body, bytes) else json.dumps(body).encode()),
            build_head(line, headers),
            math.inf,
        )
        for line, body in requests
    ]
    work = function.decode(items)
    function.run(work)
    return [(a.status, json.loads(bytes(a.body) or b"null")) for a in function.encode(work)]


def one(
    function: OnnxFunction, line: str, body: Any = b"", headers: Sequence[tuple[str, str]] = ()
) -> tuple[int, Any]:
    """Return the response to a single request."""
    return ask(function, (line, body), headers=headers)[0]


def test_inference_returns_tensors(net: OnnxFunction) -> None:
    """A response has name, shape, datatype and flat data, the request's id and the model's name."""
    status, body = one(net, INFER, {"id": "7", "inputs": [X]})
    assert 200 == status
    assert ("net", "1", "7") == (body["model_name"], body["model_version"], body["id"])
    (output,) = body["outputs"]
    assert ("y", "FP32", [1, 3]) == (output["name"], output["datatype"], output["shape"])
    assert 3 == len(output["data"])


def test_every_form_gives_the_same_numbers(net: OnnxFunction) -> None:
    """The forms are v2 flat and nested, v2 at any path, and v1 by row and by name."""
    nested = X | {"data": [ROW]}
    forms = [
        (INFER, {"inputs": [X]}),
        ("POST /v2/models/net/versions/1/infer", {"inputs": [nested]}),
        ("POST /", {"inputs": [X]}),
        ("POST /", {"instances": [ROW]}),
        ("POST /v1/models/net:predict", {"instances": [{"x": ROW}]}),
    ]
    found = [body for status, body in ask(net, *forms) if status == 200]
    numbers = [b["outputs"][0]["data"] if "outputs" in b else b["predictions"][0] for b in found]
    assert 5 == len(numbers)
    for other in numbers:
        np.testing.assert_allclose(other, numbers[0], rtol=1e-6)


def test_a_request_may_carry_several_rows(net: OnnxFunction) -> None:
    """Requests with several rows share a batch with requests of one row."""
    three = {"instances": [ROW, [1, 1, 1, 1], ROW]}
    (_, many), (_, single) = ask(net, ("POST /", three), ("POST /", {"instances": [ROW]}))
    assert 3 == len(many["predictions"])
    np.testing.assert_allclose(many["predictions"][2], single["predictions"][0], rtol=1e-6)


def test_outputs_may_be_chosen(tmp_path: Path) -> None:
    """Outputs have the requested order, and v1 returns several outputs by name."""
    function = build(models.adder(tmp_path / "m.onnx"))
    pair = {"shape": [1, 2], "datatype": "FP32", "data": [3, 4]}
    inputs = [pair | {"name": "a"}, pair | {"name": "b"}]
    _, body = one(function, INFER, {"inputs": inputs, "outputs": [{"name": "difference"}]})
    assert ["difference"] == [output["name"] for output in body["outputs"]]
    assert [0.0, 0.0] == body["outputs"][0]["data"]
    _, body = one(function, "POST /", {"instances": [{"a": [1, 2], "b": [3, 4]}]})
    assert {"sum": [4.0, 6.0], "difference": [-2.0, -2.0]} == body["predictions"][0]


def test_text_and_integers_are_exact_in_json(tmp_path: Path) -> None:
    """BYTES are JSON strings, and INT64 stays exact."""
    text = {"name": "text", "shape": [2], "datatype": "BYTES", "data": ["a", "ü"]}
    _, body = one(build(models.texts(tmp_path / "t.onnx")), INFER, {"inputs": [text]})
    assert ("BYTES", ["a", "ü"]) == (body["outputs"][0]["datatype"], body["outputs"][0]["data"])
    numbers = [[2**61 + 1, -5, 0]]
    _, body = one(build(models.doubler(tmp_path / "i.onnx")), "POST /", {"instances": numbers})
    assert [[2**62 + 2, -10, 0]] == body["predictions"]


def test_server_and_model_endpoints(net: OnnxFunction) -> None:
    """Requests about the server and the model are answered without inference."""
    assert "carpool" == one(net, "GET /v2")[1]["name"]
    assert (200, {"live": True}) == one(net, "GET /v2/health/live")
    assert (200, {"ready": True}) == one(net, "GET /v2/health/ready")
    assert (200, {"name": "net", "ready": True}) == one(net, "GET /v2/models/net/ready")
    _, about = one(net, "GET /v2/models/net/")
    assert [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}] == about["inputs"]
    assert [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}] == about["outputs"]


@pytest.mark.parametrize(
    ("line", "body"),
    [
        ("POST /v2/models/NAME/infer", {"inputs": [X]}),
        ("GET /v2/models/NAME", b""),
        ("GET /v1/models/NAME", b""),
        ("POST /v2/repository/models/NAME/load", b""),
    ],
)
def test_canary_answers_to_name_of_called_function(tmp_path: Path, line: str, body: Any) -> None:
    """A canary's model has the name of the function that was called, too, and no other one."""
    canary = build(models.mlp(tmp_path / "model.onnx"), name="net-v2")
    called = [(CALLED_HEADER, "net")]
    for name, headers, status in (
        ("net-v2", [], 200),
        ("net-v2", called, 200),
        ("net", called, 200),
        ("net", [], 404),
        ("other", called, 404),
    ):
        found, document = one(canary, line.replace("NAME", name), body, headers)
        assert status == found, (name, document)
        assert name == document.get("model_name", document.get("name", name))


@pytest.mark.parametrize(
    ("line", "body", "status", "told"),
    [
        (INFER, b"{", 400, "not JSON"),
        (INFER, b"", 400, "not JSON"),
        (INFER, [], 400, 'expected {"inputs": [...]}'),
        (INFER, {"inputs": {}}, 400, 'expected {"inputs": [...]}'),
        (INFER, {"inputs": ["x"]}, 400, "not an object with name"),
        (INFER, {"inputs": []}, 400, "input 'x' is missing"),
        (INFER, {"inputs": [X, X]}, 400, "given twice"),
        (INFER, {"inputs": [X | {"name": "z"}]}, 400, "input 'z' is not known; the model's inputs"),
        (INFER, {"inputs": [X | {"name": 5}]}, 400, "input 5 is not known"),
        (INFER, {"inputs": [X | {"datatype": "FP64"}]}, 400, "datatype is 'FP64'"),
        (INFER, {"inputs": [X | {"shape": [1, 5]}]}, 400, "its shape says [1, 5]"),
        (INFER, {"inputs": [X | {"shape": [4]}]}, 400, "shape is [4], the model expects"),
        (INFER, {"inputs": [X | {"shape": [True, 4]}]}, 400, "shape is [True, 4]"),
        (INFER, {"inputs": [X | {"shape": None}]}, 400, "shape is None"),
        (INFER, {"inputs": [X | {"data": ["a"] * 4}]}, 400, "data holds text"),
        (INFER, {"inputs": [X], "outputs": [{"name": "q"}]}, 400, "of y"),
        (INFER.replace("POST", "GET"), b"", 405, "infer takes POST"),
        ("POST /v2/models/net/versions/2/infer", {"inputs": [X]}, 404, "version '2'"),
        ("POST /v2/models/net/other", b"", 404, "'/v2/models/net/other' is not known"),
        ("GET /v2/repository", b"", 404, "is not known"),
        ("POST /", b"\xff\xfe", 400, "not JSON"),
        ("POST /", {"rows": []}, 400, '{"instances": [...]}'),
        ("POST /", {"instances": []}, 400, "instances is an empty list, expected a list with at"),
        ("POST /", {"instances": 5}, 400, "expected a list"),
        ("POST /", {"instances": [[1, 2]]}, 400, "has the shape [1, 2], the model expects"),
        ("POST /", {"instances": [{"x": ROW}, {"z": ROW}]}, 400, "the same keys"),
        ("POST /", {"instances": [{"z": ROW}]}, 400, "input 'z' is not known"),
    ],
)
def test_bad_request_fails_alone(
    net: OnnxFunction, line: str, body: Any, status: int, told: str
) -> None:
    """The response has the right status and says what was expected."""
    good = ("POST /", {"instances": [ROW]})
    before, bad, after = ask(net, good, (line, body), good)
    assert (200, 200) == (before[0], after[0])
    assert status == bad[0]
    assert told in bad[1]["error"]


def test_other_function_name_gets_404(tmp_path: Path) -> None:
    """Another name gets status 404 with the function's name."""
    function = build(models.mlp(tmp_path / "m.onnx"), name="net")
    assert 200 == one(function, "GET /v2/models/net")[0]
    status, body = one(function, "GET /v2/models/other")
    assert (404, True) == (status, "'net'" in body["error"])


def read_floats(item: Item) -> object:
    """Return the four little-endian floats of the body."""
    if len(item.body) == 0:
        raise ItemError("empty", 422)  # noqa: EM101  as an author would
    return np.frombuffer(item.body, np.float32)


def test_raw_bodies_go_through_the_authors_hooks(tmp_path: Path) -> None:
    """Hooks see arrays without the batch axis, and an error in one fails only its item."""

    def best(outputs: Any) -> object:
        assert (3,) == outputs["y"].shape
        if outputs["y"].sum() == 0:
            raise ItemError("undecided", 409)  # noqa: EM101  as an author would
        return {"best": int(outputs["y"].argmax())}

    function = build(models.mlp(tmp_path / "m.onnx"), read_floats, best)
    raw = np.array(ROW, np.float32).tobytes()
    zeros = np.zeros(4, np.float32).tobytes()
    bodies = [raw, b"", b"abc", b"abcd", zeros, raw]
    answers = ask(function, *[("POST /", body) for body in bodies])
    assert [200, 422, 500, 500, 409, 200] == [status for status, _ in answers]
    assert answers[0][1]["best"] in (0, 1, 2)
    assert "preprocess raised ValueError" in answers[2][1]["error"]
    assert "has the shape [1, 1], the model expects" in answers[3][1]["error"]


def test_preprocess_may_return_non_contiguous_array(tmp_path: Path) -> None:
    """A strided array is accepted, alone and in a batch, and so are strings."""

    def strided(item: Item) -> object:
        return np.frombuffer(item.body, np.float32)[::-2]

    values = np.arange(8, dtype=np.float32)
    path = models.mlp(tmp_path / "m.onnx")
    function = build(path, strided)
    bodies = [("POST /", values.tobytes())]
    _, expected = one(build(path), "POST /", {"instances": [values[::-2].tolist()]})
    for answer in (*ask(function, *bodies), *ask(function, *bodies * 3)):
        np.testing.assert_allclose(answer[1], expected["predictions"][0], rtol=1e-5)
    texts = build(models.texts(tmp_path / "t.onnx"), lambda item: item.bytes().decode())
    assert [(200, "a"), (200, "b")] == ask(texts, ("POST /", b"a"), ("POST /", b"b"))


def test_v2_requests_bypass_hooks(tmp_path: Path) -> None:
    """A request under /v2 sends and receives tensors without calling the hooks."""
    path = models.mlp(tmp_path / "m.onnx")
    function = build(path, read_floats, lambda _: "never")
    status, body = one(function, INFER, {"inputs": [X]})
    assert (200, "y") == (status, body["outputs"][0]["name"])


def test_outputs_are_response_without_postprocess(tmp_path: Path) -> None:
    """A single output is a list, and several outputs are given by name."""
    raw = np.array(ROW, np.float32).tobytes()
    single = build(models.mlp(tmp_path / "m.onnx"), read_floats)
    assert 3 == len(one(single, "POST /", raw)[1])

    def both(item: Item) -> object:
        row = np.frombuffer(item.body, np.float32)[:2]
        return {"a": row, "b": row}

    pair = build(models.adder(tmp_path / "a.onnx"), both)
    expected = {"sum": [1.0, -2.0], "difference": [0.0, 0.0]}
    assert expected == one(pair, "POST /", raw)[1]


def test_postprocess_is_called_for_each_row(tmp_path: Path) -> None:
    """`postprocess` is called for each row, and a value without a JSON form is an error."""
    path = models.mlp(tmp_path / "m.onnx")
    function = build(path, None, lambda outputs: len(outputs["y"]))
    assert (200, {"predictions": [3, 3]}) == one(function, "POST /", {"instances": [ROW, ROW]})
    status, body = one(build(path, None, lambda _: Reply()), "POST /", {"instances": [ROW]})
    assert (500, True) == (status, "cannot be written as JSON" in body["error"])


def test_non_finite_output_is_null(tmp_path: Path) -> None:
    """An infinity is null, as JSON cannot express it."""
    function = build(models.adder(tmp_path / "m.onnx"))
    large = {"shape": [1, 2], "datatype": "FP32", "data": [3e38, 0]}
    inputs = [large | {"name": "a"}, large | {"name": "b"}]
    _, body = one(function, INFER, {"inputs": inputs})
    assert [None, 0.0] == body["outputs"][0]["data"]


def test_preprocess_may_return_reply(tmp_path: Path) -> None:
    """A Reply from `preprocess` is sent as it is, without the model and `postprocess`."""

    def read(item: Item) -> object:
        return read_floats(item) if len(item.body) == 16 else Reply({"length": len(item.body)}, 202)

    function = build(models.mlp(tmp_path / "m.onnx"), read, lambda _: "run")
    raw = np.array(ROW, np.float32).tobytes()
    answers = ask(function, ("POST /", b"ab"), ("POST /", b""))
    assert [(202, {"length": 2}), (202, {"length": 0})] == answers
    items = [Item(memoryview(body), build_head("POST /", []), math.inf) for body in (raw, b"ab")]
    work = function.decode(items)
    function.run(work)
    assert [b"run", b'{"length":2}'] == [bytes(a.body) for a in function.encode(work)]


def test_kserve_v1_status_requests(tmp_path: Path) -> None:
    """Status requests are answered for server and model, unless `preprocess` gets all paths."""
    path = models.mlp(tmp_path / "model.onnx")
    net = build(path, name="net")
    assert (200, {"status": "alive"}) == one(net, "GET /")
    assert (200, {"name": "net", "ready": True}) == one(net, "GET /v1/models/net")
    assert 404 == one(net, "GET /v1/models/nope")[0]
    assert 400 == one(net, "POST /v1/models/net")[0]
    own = build(path, preprocess=lambda _: Reply({"own": True}), name="net")
    assert (200, {"own": True}) == one(own, "GET /v1/models/net")
