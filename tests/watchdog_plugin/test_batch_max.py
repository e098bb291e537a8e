"""No run has more rows than the largest batch, and responses are the same as without the limit.

The model itself returns the number of rows of its run.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.watchdog_plugin import models
from tests.watchdog_plugin.processes import start
from watchdog_plugin import answers
from watchdog_plugin.onnx.model import OnnxModel
from watchdog_plugin.protocols.tensors import Call

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def call(x: np.ndarray[Any, Any], requests: int = 1) -> Call:
    """Return a call of ``requests`` requests with equally many rows."""
    return Call({"x": x}, len(x) // requests, [answers.json_answer] * requests)


def distinct(rows: int, width: int = 2) -> np.ndarray[Any, Any]:
    """Return rows that all differ."""
    return np.arange(rows * width, dtype=np.float32).reshape(rows, width)


def run(model: OnnxModel, *calls: Call) -> list[Any]:
    """Return the outputs of all requests after asserting that none failed."""
    results = model.run(calls)
    assert all(isinstance(outputs, dict) for outputs in results)
    return results


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (1, [1]),
        (32, [32] * 32),
        (33, [32] * 32 + [1]),
        (64, [32] * 64),
        (100, [32] * 96 + [4] * 4),
    ],
)
def test_long_request_is_split_and_outputs_are_joined(
    tmp_path: Path, rows: int, expected: list[int]
) -> None:
    """A request is split into runs of the largest batch and its outputs are joined in order."""
    model = OnnxModel(models.counter(tmp_path / "m.onnx"), 1, None, 32)
    x = distinct(rows)
    (outputs,) = run(model, call(x))
    assert expected == outputs["rows"].tolist()
    np.testing.assert_array_equal(x, outputs["same"])


@pytest.mark.parametrize("sizes", [[20, 20, 20], [1] * 70, [40, 1, 31, 32], [3, 100, 5]])
@pytest.mark.parametrize("lengths", [None, {"ragged": {"x": 1}, "ragged_outputs": {"same": 1}}])
def test_requests_with_too_many_rows_are_split_over_runs(
    tmp_path: Path, sizes: Sequence[int], lengths: dict[str, Any] | None
) -> None:
    """Each request gets its own outputs, even if it was split over two runs or padded."""
    model = OnnxModel(models.counter(tmp_path / "m.onnx"), 1, lengths, 32)
    widths = [2] * len(sizes) if lengths is None else range(2, len(sizes) + 2)
    xs = [distinct(rows, width) for rows, width in zip(sizes, widths, strict=True)]
    for x, outputs in zip(xs, run(model, *map(call, xs)), strict=True):
        np.testing.assert_array_equal(x, outputs["same"])
        assert outputs["rows"].max() <= 32
    assert model.shares_runs


def test_outputs_of_requests_read_together_are_separated(tmp_path: Path) -> None:
    """Each request gets its own outputs, even if a run ends in the middle of one."""
    model = OnnxModel(models.counter(tmp_path / "m.onnx"), 1, None, 4)
    x = distinct(9)
    outputs = run(model, call(x, requests=3))
    assert [[4, 4, 4], [4, 4, 4], [4, 4, 1]] == [out["rows"].tolist() for out in outputs]
    np.testing.assert_array_equal(x, np.concatenate([out["same"] for out in outputs]))


def test_fixed_batch_of_model_overrides_largest_batch(tmp_path: Path) -> None:
    """A fixed batch size of the model overrides the largest batch."""
    model = OnnxModel(models.mlp(tmp_path / "m.onnx", batch=8), 1, None, 4)
    (outputs,) = run(model, call(distinct(8, 4)))
    assert (8, 3) == outputs["y"].shape


def test_model_without_row_outputs_gets_whole_requests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model whose outputs have no rows gets each request whole, with one message about it."""
    path = models.row_sum(tmp_path / "m.onnx", out=["width"], axis=0)
    model = OnnxModel(path, 1, None, 4)
    x = distinct(10)
    for _ in range(2):
        (outputs,) = run(model, call(x))
        np.testing.assert_array_equal(x.sum(0), outputs["sum"])
    assert 1 == capsys.readouterr().err.count("requests run one by one from now on")


def test_request_is_not_split_if_output_shape_depends_on_rows(tmp_path: Path) -> None:
    """A request whose output shape depends on its rows is not split."""
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
        helper.make_node("Reshape", ["most", "one"], ["end"]),
        helper.make_node("Slice", ["x", "zero", "end", "one"], ["y"]),
    ]
    constants = {"zero": np.array([0]), "one": np.array([1])}
    inputs: dict[str, Any] = {"x": (TensorProto.INT64, ["batch", 3])}
    outputs: dict[str, Any] = {"y": (TensorProto.INT64, ["batch", "most"])}
    path = models.save(tmp_path / "m.onnx", nodes, inputs, outputs, constants)
    model = OnnxModel(path, 1, None, 2)
    x = np.array([[1, 1, 1], [1, 0, 1], [1, 2, 0]])
    (found,) = run(model, call(x))
    assert [[1, 1], [1, 0], [1, 2]] == found["y"].tolist()


def test_a_process_takes_the_limit_from_its_settings(tmp_path: Path) -> None:
    """``carpool_batch_max`` applies to requests of both protocols, alone and in a batch."""
    models.counter(tmp_path / "function" / "model.onnx")
    long = json.dumps({"instances": distinct(7).tolist()}).encode()
    tensor = {"name": "x", "shape": [3, 2], "datatype": "FP32", "data": [1.0] * 6}
    infer = json.dumps({"inputs": [tensor], "outputs": [{"name": "rows"}]}).encode()
    with (
        start(tmp_path, carpool_batch_max="4") as handler,
        handler.wait_ready().connect() as client,
    ):
        (alone,) = client.batch([long])
        predictions = json.loads(alone.body)["predictions"]
        assert [4, 4, 4, 4, 3, 3, 3] == [prediction["rows"] for prediction in predictions]
        assert distinct(7).tolist() == [prediction["same"] for prediction in predictions]
        one, two, three = client.batch([infer, infer, long])
        assert [4, 4, 4] == json.loads(one.body)["outputs"][0]["data"]
        assert max(json.loads(two.body)["outputs"][0]["data"]) <= 4
        assert max(p["rows"] for p in json.loads(three.body)["predictions"]) <= 4
