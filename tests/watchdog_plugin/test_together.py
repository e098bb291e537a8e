"""Requests read and run together get the same responses, byte for byte, as alone."""

from __future__ import annotations

import itertools
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.wire import build_head, parse_head
from tests.effort import scaled
from tests.watchdog_plugin import models
from watchdog_plugin import Item, ItemError, Reply, logs
from watchdog_plugin.handler_contract import HandlerModule
from watchdog_plugin.onnx.function import OnnxFunction
from watchdog_plugin.onnx.model import OnnxModel

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from watchdog_plugin.answers import Answer

CALL_IDS = itertools.count()
BATCH_MAX = 4  # so that batches need several runs too


def ask(function: OnnxFunction, items: Sequence[Item]) -> list[Answer]:
    """Return the responses to one batch."""
    work = function.decode(items)
    function.run(work)
    return function.encode(work)


def item(line: str, body: Any, tail: bytes | None = None) -> Item:
    """Return a request, with a header for the length of its JSON if ``tail`` is given."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = [("content-type", "application/json")]
    if tail is not None:
        headers.append(("inference-header-content-length", str(len(text))))
    headers.append(("x-call-id", str(next(CALL_IDS))))  # as the provider gives each call its own
    return Item(memoryview(text + (tail or b"")), build_head(line, headers), math.inf)


def mostly(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    """Draw ``usual`` nine times in ten, so that most of a batch runs together."""
    return st.integers(0, 9).flatmap(
        lambda dice: st.sampled_from(others) if dice == 9 else st.just(usual)
    )


# Whole numbers, but for the odd one: what a model makes of them is exact in any batch.
WHOLE = st.integers(-9, 99)
MIXED = st.one_of(WHOLE, st.sampled_from([0.5, -2.0, True, None, "1", 2**63, 2**70, 1e300]))


@st.composite
def grids(draw: st.DrawFn) -> list[list[Any]]:
    """Draw rows of numbers, mostly one row of the width that the model expects."""
    value = draw(mostly(WHOLE, MIXED, st.booleans()))
    width, count = draw(mostly(3, 2, 0)), draw(mostly(1, 2, 3, 6, 0))
    row = st.lists(value, min_size=width, max_size=width)
    return draw(st.lists(row, min_size=count, max_size=count))


@st.composite
def instances(draw: st.DrawFn) -> Item:
    """Draw a v1 request with rows or objects."""
    rows: list[Any] = draw(grids())
    name = draw(mostly(None, "x", "z"))
    if name:
        rows = [{name: row} for row in rows]
    return item(draw(mostly("POST /", "POST /any")), {"instances": rows})


@st.composite
def inferences(draw: st.DrawFn, datatype: str) -> Item:
    """Draw an Open Inference Protocol request with flat, nested or binary data."""
    rows = draw(grids())
    width = len(rows[0]) if rows else 3
    shape = draw(mostly([len(rows), width], [1, 3], [True, 3], [1.0, 3], [3], []))
    tensor = {"name": "x", "shape": shape, "datatype": datatype}
    body: dict[str, Any] = {"inputs": [tensor]}
    if draw(st.booleans()):
        body["id"] = draw(st.sampled_from(["a", "b", 7]))
    body["outputs"] = draw(mostly(None, [{"name": "y"}], [{"name": "q"}]))
    flag = draw(mostly(draw(st.booleans()), 1, 0))
    body["parameters"] = {"binary_data_output": flag}
    tail = None
    if draw(st.booleans()):
        dtype = {"FP32": "<f4", "INT64": "<i8"}[datatype]
        tail = (np.arange(len(rows) * width) + draw(WHOLE)).astype(dtype).tobytes()
        parameters = {"binary_data_size": draw(mostly(len(tail), len(tail) - 1, 0))}
        tensor["parameters"] = parameters
    else:
        form = draw(mostly("flat", "nested"))
        tensor["data"] = rows if form == "nested" else [value for row in rows for value in row]
    line = draw(mostly("POST /v2/models/a/infer", "POST /v2/models/b/infer", "POST /"))
    return item(line, body, tail)


ODD = st.sampled_from(
    [
        item("POST /", b"{"),
        item("POST /", b""),
        item("POST /", [1]),
        item("POST /", {"instances": 5}),
        item("POST /", {"instances": "abc"}),
        item("POST /", {"instances": {"x": [1, 2, 3]}}),
        item("POST /", {"instances": [[1, 2, 3]]}, b""),
        item("POST /", {"instances": [[1, 2, 3]]}, b"more"),
        item("POST /v2/models/a/infer", []),
        item("POST /v2/models/a/infer", {"inputs": [5]}),
        item("POST /v2/models/a/infer", {"inputs": [{"name": "x", "data": "abc"}]}),
        item("POST /v2/models/a/infer", b'{"inputs": [], "deep": %s}' % (b"[" * 500 + b"]" * 500)),
        item("GET /v2/models/a/infer", b""),
        item("GET /v2/models/a", b""),
        item("GET /v2/nothing", b""),
    ]
)


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, OnnxFunction]:
    """Functions by name, with models whose outputs are exact."""
    folder = tmp_path_factory.mktemp("models")
    from onnx import TensorProto, helper

    free: tuple[int, Any] = (TensorProto.FLOAT, ["batch", "width"])
    same = [helper.make_node("Identity", ["x"], ["y"])]
    paths = {
        "doubler": (models.doubler(folder / "doubler.onnx"), None),
        "any width": (models.save(folder / "free.onnx", same, {"x": free}, {"y": free}), None),
        "padded": (folder / "free.onnx", {"ragged": {"x": 1}, "ragged_outputs": {"y": 1}}),
        "one row": (models.mlp(folder / "one.onnx", batch=1, size=3), None),
    }
    return {
        name: OnnxFunction(OnnxModel(path, 1, lengths, BATCH_MAX), HandlerModule(path), "")
        for name, (path, lengths) in paths.items()
    }


@pytest.mark.parametrize(
    ("name", "datatype"),
    [("doubler", "INT64"), ("any width", "FP32"), ("padded", "FP32"), ("one row", "FP32")],
)
@given(data=st.data())
@settings(max_examples=scaled(60))
def test_batch_gives_same_responses_as_single_requests(
    functions: dict[str, OnnxFunction], name: str, datatype: str, data: st.DataObject
) -> None:
    """A batch holds valid, invalid, ragged and long requests of every form."""
    function = functions[name]
    usual = data.draw(st.sampled_from([instances(), inferences(datatype)]))
    request = mostly(usual, instances(), inferences(datatype), ODD).flatmap(lambda kind: kind)
    items = data.draw(st.lists(request, min_size=1, max_size=12))
    expected = [ask(function, [one])[0] for one in items]
    found = ask(function, items)
    assert [(a.status, a.head, bytes(a.body)) for a in expected] == [
        (a.status, a.head, bytes(a.body)) for a in found
    ]
    model = function._model
    assert isinstance(model, OnnxModel)
    assert (name != "one row") == model.shares_runs


def test_similar_requests_get_their_own_responses(tmp_path: Path) -> None:
    """Requests differ in model name, id, sizes or values that are equal only in Python."""
    path = models.doubler(tmp_path / "m.onnx")
    function = OnnxFunction(OnnxModel(path, 1), HandlerModule(path), "")
    a, b = "POST /v2/models/a/infer", "POST /v2/models/b/infer"
    data = np.array([[1, 2, 3]], np.int64).tobytes()
    plain = {"name": "x", "shape": [1, 3], "datatype": "INT64", "data": [1, 2, 3]}
    sized = {**plain, "parameters": {"binary_data_size": 24}}
    del sized["data"]
    items = [
        item(a, {"inputs": [plain]}),
        item(b, {"inputs": [plain]}),
        item(a, {"inputs": [plain], "id": "1"}),
        item(a, {"inputs": [plain], "id": 1}),
        item(a, {"inputs": [plain | {"shape": [True, 3]}]}),
        item(a, {"inputs": [plain], "parameters": {"binary_data_output": True}}),
        item(a, {"inputs": [plain], "parameters": {"binary_data_output": 1}}),
        item(a, {"inputs": [sized]}, data),
        item(b, {"inputs": [sized]}, data),
        item(a, {"inputs": [sized]}, data + b"more"),
        item(a, {"inputs": [sized]}),
        item(a, {"inputs": [sized], "id": 2}, data),
    ]
    expected = [ask(function, [one])[0] for one in items]
    statuses = [200, 200, 200, 200, 400, 200, 400, 200, 200, 400, 400, 200]
    assert statuses == [answer.status for answer in expected]
    assert [(s, h, bytes(b)) for s, h, b in expected * 2] == [
        (s, h, bytes(b)) for s, h, b in ask(function, items * 2)
    ]


def test_heads_that_differ_in_call_id_are_parsed_once(tmp_path: Path) -> None:
    """The provider's id in every call costs the handler no parsing."""
    path = models.doubler(tmp_path / "m.onnx")
    function = OnnxFunction(OnnxModel(path, 1), HandlerModule(path), "")
    known = len(parse_head)
    items = [item("POST /ids", {"instances": [[1, 2, number]]}) for number in range(20)]
    assert [200] * 20 == [answer.status for answer in ask(function, items)]
    assert known + 1 == len(parse_head)
    assert "POST" == items[0].method
    assert items[0].headers["x-call-id"] != items[1].headers["x-call-id"]


def test_text_does_not_span_two_bodies(tmp_path: Path) -> None:
    """Bytes that form two texts only across two bodies are two bad requests."""
    path = models.texts(tmp_path / "t.onnx")
    function = OnnxFunction(OnnxModel(path, 1), HandlerModule(path), "")
    halves = [b"\x04\0\0\0ab", b"cd\0\0\0\0"]
    tensor = {"name": "text", "shape": [1], "datatype": "BYTES"}
    body = {"inputs": [tensor | {"parameters": {"binary_data_size": 6}}]}
    items = [item("POST /v2/models/t/infer", body, half) for half in halves]
    assert [400, 400] == [answer.status for answer in ask(function, items)]


def test_hook_result_affects_only_its_item(tmp_path: Path) -> None:
    """What a hook returns or raises for one item does not affect the others."""

    def read(raw: Item) -> object:
        if not raw.body:
            return Reply(b"empty", 202)
        if len(raw.body) % 8:
            raise ItemError("odd", 422)  # noqa: EM101  as an author would
        return np.frombuffer(raw.body, np.int64)

    def tell(outputs: Any) -> object:
        if outputs["y"][0] < 0:
            raise ItemError("negative", 409)  # noqa: EM101  as an author would
        return outputs["y"].tolist()

    path = models.doubler(tmp_path / "m.onnx")
    author = HandlerModule(path, preprocess=read, postprocess=tell)
    function = OnnxFunction(OnnxModel(path, 1, None, BATCH_MAX), author, "")
    rows = [[1, 2, 3], [-1, 0, 0], [4, 5], [6, 7, 8]] * 3
    bodies = [b"", b"abc", *[np.array(row, np.int64).tobytes() for row in rows]]
    answers = ask(function, [item("POST /", body) for body in bodies])
    statuses = [202, 422, *[200, 409, 500, 200] * 3]
    assert statuses == [answer.status for answer in answers]
    assert ([2, 4, 6], [12, 14, 16]) == tuple(json.loads(bytes(answers[i].body)) for i in (2, 5))


def test_failed_joint_run_fails_only_bad_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that were read together run one by one if their run raises."""
    monkeypatch.setattr(logs, "_failures", logs._Budget(10))
    path = models.lookup(tmp_path / "m.onnx")
    function = OnnxFunction(OnnxModel(path, 1, None, BATCH_MAX), HandlerModule(path), "")
    indices = [[3], [99], [7], [1, 2], [4, 99]]
    answers = ask(function, [item("POST /", {"instances": index}) for index in indices])
    assert [200, 400, 200, 200, 400] == [answer.status for answer in answers]
    assert b'{"predictions":[10.0,20.0]}' == answers[3].body
