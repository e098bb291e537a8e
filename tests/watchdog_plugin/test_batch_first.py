"""Models whose batch axis is not the first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.watchdog_plugin import models
from tests.watchdog_plugin.test_onnx_function import one
from watchdog_plugin import answers
from watchdog_plugin.function import LoadError
from watchdog_plugin.handler_contract import HandlerModule
from watchdog_plugin.onnx.function import OnnxFunction
from watchdog_plugin.onnx.model import OnnxModel
from watchdog_plugin.protocols.tensors import Call

if TYPE_CHECKING:
    from pathlib import Path

AXES = {"x": 1, "twice": 1}
STEPS = 5


def recurrent(path: Path) -> Path:
    """``x`` FP32 [5, batch, 2] -> ``sum`` [batch, 2] over steps, and ``twice`` [5, batch, 2]."""
    return models.save(
        path,
        [
            helper.make_node("ReduceSum", ["x", "axes"], ["sum"], keepdims=0),
            helper.make_node("Add", ["x", "x"], ["twice"]),
        ],
        {"x": (TensorProto.FLOAT, [STEPS, "batch", 2])},
        {
            "sum": (TensorProto.FLOAT, ["batch", 2]),
            "twice": (TensorProto.FLOAT, [STEPS, "batch", 2]),
        },
        {"axes": np.array([0], np.int64)},
    )


def test_requests_share_a_run_along_the_declared_axis(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each request gets its own response, with the batch axis first."""
    model = OnnxModel(recurrent(tmp_path / "m.onnx"), 1, batch_axis=AXES)
    model.warm_up([1, 4])
    assert model.shares_runs
    assert "" == capsys.readouterr().err
    x = np.arange(3 * STEPS * 2, dtype=np.float32).reshape(3, STEPS, 2)
    calls = [Call({"x": x[n : n + 1]}, 1, [answers.json_answer]) for n in range(3)]
    for number, outcome in enumerate(model.run(calls)):
        assert isinstance(outcome, dict)
        np.testing.assert_array_equal(2 * x[number : number + 1], outcome["twice"])
        np.testing.assert_array_equal(x[number : number + 1].sum(axis=1), outcome["sum"])


def test_request_inputs_have_batch_axis_first(tmp_path: Path) -> None:
    """Inputs have the batch axis first in the model's description and in requests."""
    path = recurrent(tmp_path / "m.onnx")
    function = OnnxFunction(OnnxModel(path, 1, batch_axis=AXES), HandlerModule(path), "")
    _, described = one(function, "GET /v2/models/net")
    assert [[-1, STEPS, 2]] == [each["shape"] for each in described["inputs"]]
    data = np.arange(STEPS * 2, dtype=np.float32).reshape(STEPS, 2).tolist()
    status, answer = one(function, "POST /", {"instances": [data]})
    assert (200, np.array(data).sum(axis=0).tolist()) == (status, answer["predictions"][0]["sum"])


def test_a_scalar_input_is_passed_unchanged(tmp_path: Path) -> None:
    """An input without axes is no obstacle to axes declared for others."""
    path = models.save(
        tmp_path / "m.onnx",
        [helper.make_node("Mul", ["x", "factor"], ["scaled"])],
        {"x": (TensorProto.FLOAT, [2, "batch"]), "factor": (TensorProto.FLOAT, [])},
        {"scaled": (TensorProto.FLOAT, [2, "batch"])},
    )
    model = OnnxModel(path, 1, batch_axis={"x": 1, "scaled": 1})
    inputs = {"x": np.array([[1, 2]], np.float32), "factor": np.array(3, np.float32)}
    (outcome,) = model.run([Call(inputs, 1, [answers.json_answer])])
    assert isinstance(outcome, dict)
    np.testing.assert_array_equal([[3, 6]], outcome["scaled"])


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (["x"], "expected a dict of axes"),
        ({"z": 1}, "names 'z', the model has x, sum, twice"),
        ({"x": 3}, "expected an axis from 0 to 2"),
        ({"x": True}, "expected an axis from 0 to 2"),
        ({"x": 0}, "is not free"),
    ],
)
def test_mismatched_axis_declaration_is_refused(tmp_path: Path, declared: Any, said: str) -> None:
    """A declared axis that does not fit the model is refused at loading."""
    with pytest.raises(LoadError, match=said):
        OnnxModel(recurrent(tmp_path / "m.onnx"), 1, batch_axis=declared)
