"""ONNX files read for their structure."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.onnx_graph import onnx_reader, protobuf
from tests.carpool.onnx_graph.models import model, parts


def test_a_model_is_read_as_the_onnx_package_reads_it() -> None:
    """Nodes, attributes, constants and ends are those of the file."""
    file = parts(model(np.ones((3, 5), np.float32), {"axis": -2, "scale": 0.5, "to": [1, -1]}))
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


@given(st.binary(max_size=300))
def test_no_bytes_crash_the_reader(data: bytes) -> None:
    """Whatever a file holds, it is read or refused."""
    try:
        onnx_reader.read(memoryview(data))
    except (protobuf.MalformedError, ValueError):
        return


@pytest.mark.parametrize("kept", [1, 10, 100, 150])
def test_a_file_cut_short_is_refused(kept: int) -> None:
    """A part of a model is no model."""
    data = model(np.ones((30, 5), np.float32)).SerializeToString()
    with pytest.raises(protobuf.MalformedError):
        onnx_reader.read(memoryview(data)[: len(data) - kept])
