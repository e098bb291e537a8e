"""ONNX files written from their parts, as the onnx package reads them."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from carpool.onnx_graph import onnx_writer
from tests.carpool.onnx_graph.models import model, parts


def test_weights_are_written_as_a_place_in_a_file_of_zeros() -> None:
    """Large constants lose their values and keep their form; small ones keep both."""
    made = model(np.ones((300, 5), np.float32))
    made.graph.initializer.append(numpy_helper.from_array(np.array([7, 8]), "shape"))
    file = parts(made)
    written = onnx_writer.write(file, file.inputs, ["y"], "zeros")
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
    file = parts(model(np.ones((300, 5), np.float32)))
    again = onnx.load_from_string(onnx_writer.write(file, file.inputs, ["y"]).model)
    assert ["x", "w"] == [value.name for value in again.graph.input]
    assert [] == list(again.graph.initializer)


def test_a_whole_model_keeps_its_weights() -> None:
    """What is to be run has the values it was given."""
    weight = np.arange(1500, dtype=np.float32).reshape(300, 5)
    file = parts(model(weight))
    again = onnx.load_from_string(onnx_writer.write(file, file.inputs, ["y"], inline=True).model)
    assert weight.tolist() == numpy_helper.to_array(again.graph.initializer[0]).tolist()
