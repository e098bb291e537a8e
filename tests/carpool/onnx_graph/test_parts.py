"""Reading and replacing parts of models."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from carpool.onnx_graph.parts import (
    as_input,
    attributes,
    dims,
    in_file,
    is_inline,
    replaced,
    size_bytes,
)
from tests.carpool.onnx_graph.models import model


def test_numbers_and_texts_are_attributes() -> None:
    """Numbers (also zeros) and texts are attributes; tensors are not; floats have six digits."""
    given = {"axis": 0, "scale": 0.1, "to": [1, -1], "steps": [0.5, 0.1], "mode": "linear"}
    constant = numpy_helper.from_array(np.ones(2, np.float32))
    (node,) = model(np.ones((3, 5), np.float32), given | {"value": constant}).graph.node
    expected = given | {"to": (1, -1), "steps": (0.5, 0.1)}
    assert expected == attributes(node)


def test_large_constants_become_references_into_a_file() -> None:
    """A large constant is reduced to its shape and a position in a file; small ones are inline."""
    large = numpy_helper.from_array(np.ones((300, 5), np.float32), "w")
    elsewhere = in_file(large, "zeros")
    assert TensorProto.EXTERNAL == elsewhere.data_location
    assert ["zeros", "0", "6000"] == [entry.value for entry in elsewhere.external_data]
    assert ("w", [300, 5], 6000) == (elsewhere.name, elsewhere.dims, size_bytes(elsewhere))
    assert b"" == elsewhere.raw_data
    small = numpy_helper.from_array(np.array([7, 8]), "shape")
    assert [False, True, False] == [is_inline(each) for each in (large, small, in_file(small, "f"))]


def test_weights_can_be_inputs_instead() -> None:
    """A weight can be replaced by an input of its shape, and the rest of the model is unchanged."""
    made = model(np.ones((300, 5), np.float32))
    (weight,) = made.graph.initializer
    again = replaced(made, input=[*made.graph.input, as_input(weight)], initializer=[])
    assert {"x": ("n", 300), "w": (300, 5)} == {
        value.name: dims(value) for value in again.graph.input
    }
    assert [] == list(again.graph.initializer)
    assert ("g", made.opset_import) == (again.graph.name, again.opset_import)
    assert 1 == len(made.graph.initializer)
    assert onnx.load_from_string(again.SerializeToString()) == again
