"""Single nodes of optimised models as models of their own."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from carpool.onnx_graph.model_file import read_onnx
from carpool.onnx_graph.optimised import optimised
from carpool.onnx_graph.single_node import (
    feeds,
    random_array,
    results,
    shape_values,
    single_node,
)

if TYPE_CHECKING:
    from pathlib import Path

    from onnx import ModelProto

    Arrays = dict[str, np.ndarray[Any, Any]]

_BATCH = 3


def test_every_node_of_a_model_runs_alone(tmp_path: Path) -> None:
    """Every node runs alone with the graph's shapes, even if fused, re-laid out or reshaped."""
    path = _saved(tmp_path / "net.onnx")
    best = optimised(path, read_onnx(path))
    values = shape_values(best.model, best.graph.operators, _BATCH, _run)
    op_types = []
    for node, operator in zip(best.model.graph.node, best.graph.operators, strict=True):
        case = operator.at(_BATCH)
        outputs = _run(single_node(best.model, node, case), feeds(node, case, values))
        assert [form.shape for form in case.outputs] == [array.shape for array in outputs.values()]
        op_types.append(case.op_type)
    assert {"nchwc.Conv", "Shape", "Reshape", "MatMul"} <= set(op_types)


def test_values_derived_from_shapes_are_computed(tmp_path: Path) -> None:
    """The target of a Reshape, computed from the batch, is the same as in a run of the model."""
    path = _saved(tmp_path / "net.onnx")
    best = optimised(path, read_onnx(path))
    (reshape,) = [node for node in best.model.graph.node if node.op_type == "Reshape"]
    for batch in (1, 4):
        values = shape_values(best.model, best.graph.operators, batch, _run)
        assert [batch, -1] == values[reshape.input[1]].tolist()


@pytest.mark.parametrize(("summand", "written"), [("first", [3]), ("second", [])])
def test_a_fused_sum_is_written_over_its_summand(
    tmp_path: Path, summand: str, written: list[int]
) -> None:
    """A convolution into which a sum is fused writes over the summand, unless it convolves that."""
    path = _residual(tmp_path / "net.onnx", summand)
    best = optimised(path, read_onnx(path))
    pairs = zip(best.model.graph.node, best.graph.operators, strict=True)
    ((node, operator),) = [pair for pair in pairs if len(pair[0].input) == 4]
    case = operator.at(_BATCH)
    inputs = feeds(node, case, {})
    (output,) = results(node, case, inputs).values()

    assert written == [at for at, name in enumerate(node.input) if inputs.get(name) is output]
    assert case.outputs[0].shape == output.shape


def test_random_inputs_suit_operators() -> None:
    """Random arrays have the given shape, with a deviation of about one, or integers 0 and 1."""
    some = random_array(np.dtype(np.float32), (3, 700, 1000))
    assert (3, 700, 1000) == some.shape
    assert 0.9 < float(some.std()) < 1.1
    assert {0, 1} == set(random_array(np.dtype(np.int64), (50,)).tolist())
    assert (0, 4) == random_array(np.dtype(np.float32), (0, 4)).shape


def test_random_weights_do_not_saturate_recurrent_gates(tmp_path: Path) -> None:
    """Random weights, like trained ones, do not saturate the gates, which would slow the layer."""
    path = _recurrent(tmp_path / "net.onnx")
    best = optimised(path, read_onnx(path))
    places = zip(best.model.graph.node, best.graph.operators, strict=True)
    ((node, operator),) = [each for each in places if each[1].op_type == "GRU"]
    case = operator.at(_BATCH)
    values = shape_values(best.model, best.graph.operators, _BATCH, _run)
    outputs = _run(single_node(best.model, node, case), feeds(node, case, values))

    assert float(np.mean(np.abs(outputs[node.output[0]]) > 0.9)) < 0.05


def _residual(path: Path, summand: str) -> Path:
    """Write a model of three convolutions, to the last of which an earlier result is added."""
    kernel = np.random.default_rng(3).standard_normal((16, 16, 3, 3), np.float32)
    nodes = []
    for source, target in itertools.pairwise(("x", "first", "second")):
        conv = helper.make_node("Conv", [source, "kernel"], [f"{target} sum"], pads=[1] * 4)
        nodes += [conv, helper.make_node("Relu", [f"{target} sum"], [target])]
    nodes += [
        helper.make_node("Conv", ["second", "kernel"], ["third"], pads=[1] * 4),
        helper.make_node("Add", ["third", summand], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 16, 8, 8])],
        [numpy_helper.from_array(kernel, "kernel")],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def _recurrent(path: Path) -> Path:
    """Write a model with a GRU over ten steps."""
    shapes = {"w": (1, 3 * 64, 48), "r": (1, 3 * 64, 64), "b": (1, 6 * 64)}
    nodes = [
        helper.make_node("Transpose", ["x"], ["steps"], perm=[1, 0, 2]),
        helper.make_node("GRU", ["steps", *shapes], ["h"], hidden_size=64),
        helper.make_node("Squeeze", ["h", "one"], ["s"]),
        helper.make_node("Transpose", ["s"], ["y"], perm=[1, 0, 2]),
    ]
    constants = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 10, 48])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 10, 64])],
        [
            numpy_helper.from_array(np.array([1], np.int64), "one"),
            *(numpy_helper.from_array(array, name) for name, array in constants.items()),
        ],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def _saved(path: Path) -> Path:
    """Write a model of a convolution and a product, reshaped by a chain of shape operators."""
    rng = np.random.default_rng(2)
    constants: dict[str, np.ndarray[Any, Any]] = {
        "kernel": rng.standard_normal((16, 16, 3, 3), np.float32),
        "weights": rng.standard_normal((16 * 64, 8), np.float32),
        "first": np.array([0], np.int64),
        "rest": np.array([-1], np.int64),
    }
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "first"], ["n"]),
        helper.make_node("Concat", ["n", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["r", "target"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def _run(model: ModelProto, inputs: Arrays | None = None) -> Arrays:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs or {}), strict=True))
