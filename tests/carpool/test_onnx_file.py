"""ONNX files read for their structure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from carpool.onnx_graph import onnx_file, protobuf

if TYPE_CHECKING:
    from collections.abc import Sequence


def _model(weight: np.ndarray, attributes: dict[str, Any] | None = None) -> onnx.ModelProto:
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="first", **(attributes or {}))
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", weight.shape[0]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", weight.shape[1]])],
        [numpy_helper.from_array(weight, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=3)


def _read(model: onnx.ModelProto) -> onnx_file.OnnxFile:
    return onnx_file.read(memoryview(model.SerializeToString()))


def test_a_model_is_read_as_the_onnx_package_reads_it() -> None:
    """Nodes, attributes, constants and ends are those of the file."""
    file = _read(_model(np.ones((3, 5), np.float32), {"axis": -2, "scale": 0.5, "to": [1, -1]}))
    (node,) = file.nodes
    assert ("first", "MatMul", ("x", "w"), ("y",)) == (
        node.name,
        node.operator,
        node.inputs,
        node.outputs,
    )
    assert {"axis": -2, "scale": 0.5, "to": (1, -1)} == node.attributes
    assert (3, 5) == file.tensors["w"].dims
    assert 60 == file.tensors["w"].size_bytes
    assert [("x", 1, ("n", 3))] == [tuple(value) for value in file.inputs]
    assert {"": 17} == file.opsets


def test_weights_are_written_as_a_place_in_a_file_of_zeros() -> None:
    """Large constants lose their values and keep their form; small ones keep both."""
    model = _model(np.ones((300, 5), np.float32))
    model.graph.initializer.append(numpy_helper.from_array(np.array([7, 8]), "shape"))
    file = _read(model)
    written = onnx_file.write(file, file.inputs, ["y"], "zeros")
    again = onnx.load_from_string(written.model)
    large, small = again.graph.initializer
    assert TensorProto.EXTERNAL == large.data_location
    assert "zeros" == large.external_data[0].value
    assert written.weights_bytes >= 6000
    assert b"" == large.raw_data
    assert [7, 8] == numpy_helper.to_array(small).tolist()
    assert 4 == again.ir_version


def test_weights_can_be_inputs_instead() -> None:
    """Where only shapes matter, a weight's form is all that is left of it."""
    file = _read(_model(np.ones((300, 5), np.float32)))
    again = onnx.load_from_string(onnx_file.write(file, file.inputs, ["y"]).model)
    assert ["x", "w"] == [value.name for value in again.graph.input]
    assert [] == list(again.graph.initializer)


def test_a_whole_model_keeps_its_weights() -> None:
    """What is to be run has the values it was given."""
    weight = np.arange(1500, dtype=np.float32).reshape(300, 5)
    file = _read(_model(weight))
    again = onnx.load_from_string(onnx_file.write(file, file.inputs, ["y"], inline=True).model)
    assert weight.tolist() == numpy_helper.to_array(again.graph.initializer[0]).tolist()


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_integers_survive_the_wire(values: Sequence[int]) -> None:
    """Signs and sizes are kept, one by one and packed."""
    single = b"".join(protobuf.number_field(7, value) for value in values)
    found = [field.integer() for field in protobuf.fields(memoryview(single))]
    assert list(values) == found


@given(st.binary(max_size=300))
def test_no_bytes_crash_the_reader(data: bytes) -> None:
    """Whatever a file holds, it is read or refused."""
    try:
        onnx_file.read(memoryview(data))
    except (protobuf.MalformedError, ValueError):
        return


@pytest.mark.parametrize("kept", [1, 10, 100, 150])
def test_a_file_cut_short_is_refused(kept: int) -> None:
    """A part of a model is no model."""
    data = _model(np.ones((30, 5), np.float32)).SerializeToString()
    with pytest.raises(protobuf.MalformedError):
        onnx_file.read(memoryview(data)[: len(data) - kept])
