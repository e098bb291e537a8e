"""ONNX files made ready for questions about batches, and files that are none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from carpool.errors import ConfigError
from carpool.onnx_graph.model_file import read_onnx
from carpool.onnx_graph.parts import dims
from tests.carpool.onnx_graph.models import model

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a model is."""
    return tmp_path / "model.onnx"


def test_a_model_has_one_free_dimension_and_names(path: Path) -> None:
    """The batch has our name; constants are no inputs; every node can be told from others."""
    made = model(np.ones((3, 5), np.float32))
    made.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [3, 5]))
    made.graph.value_info.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [7, 5]))
    for name in ("first", ""):
        made.graph.node.append(helper.make_node("Relu", ["y"], [f"z{name}"], name=name))
    onnx.save(made, path)
    read = read_onnx(path)
    assert [("x", ("batch", 3))] == [(value.name, dims(value)) for value in read.graph.input]
    assert ["first", "Relu_1", "Relu_2"] == [node.name for node in read.graph.node]
    assert [] == list(read.graph.value_info)
    assert 4 == read.ir_version
    assert made.graph.initializer[0] == read.graph.initializer[0]


def test_other_free_dimensions_need_sizes(path: Path) -> None:
    """Given by name, or by the input's name and place; what is no dimension is refused."""
    made = model(np.ones((3, 5), np.float32))
    made.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [0, "t", None]))
    onnx.save(made, path)
    read = read_onnx(path, {"t": 7, "z.2": 9})
    assert ("batch", 7, 9) == dims(read.graph.input[1])
    with pytest.raises(ConfigError, match=r"free dimension 't'.*--dim t=SIZE[^$]*--dim z\.2=SIZE"):
        read_onnx(path)
    with pytest.raises(ConfigError, match=r"'width': expected a free dimension of the model"):
        read_onnx(path, {"t": 7, "z.2": 9, "width": 1})


def test_dimensions_without_names_are_sized_apart(path: Path) -> None:
    """``?`` is no name: each place has its own size, and a place goes before a name."""
    made = model(np.ones((3, 5), np.float32))
    for name, dim in (("u", "?"), ("v", "t")):
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, [0, dim, dim])
        made.graph.input.append(value)
    onnx.save(made, path)
    read = read_onnx(path, {"u.1": 7, "u.2": 9, "t": 4, "v.2": 6})
    assert [("batch", 7, 9), ("batch", 4, 6)] == [dims(value) for value in read.graph.input[1:]]
    with pytest.raises(ConfigError, match=r"free dimension 'u\.1'.*--dim u\.1=SIZE"):
        read_onnx(path, {"t": 4})


@pytest.mark.parametrize(("datatype", "told"), [(0, "no shape"), (999, "datatype 999")])
def test_inputs_are_tensors_of_known_kinds(path: Path, datatype: int, told: str) -> None:
    """What could not be made up for a run is refused by name."""
    made = model(np.ones((3, 5), np.float32))
    made.graph.input[0].type.tensor_type.elem_type = datatype
    onnx.save(made, path)
    with pytest.raises(ConfigError, match=rf"input 'x' = '{told}'"):
        read_onnx(path)


def test_weights_elsewhere_need_not_be_there(path: Path) -> None:
    """A model whose weights are in a missing file has a structure all the same."""
    made = model(np.ones((300, 5), np.float32))
    onnx.external_data_helper.convert_model_to_external_data(made, location="w", size_threshold=0)
    onnx.save(made, path)
    (path.parent / "w").unlink()
    assert (300, 5) == tuple(read_onnx(path).graph.initializer[0].dims)


@given(st.binary(max_size=300))
def test_no_bytes_crash_the_reader(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """Whatever a file holds, it is read or refused."""
    path = tmp_path_factory.getbasetemp() / "any.onnx"
    path.write_bytes(data)
    try:
        read_onnx(path)
    except ConfigError:
        return


@pytest.mark.parametrize("kept", [1, 10, 100, 150])
def test_a_file_cut_short_is_refused(path: Path, kept: int) -> None:
    """A part of a model is no model; its size is told, and what to do."""
    data = model(np.ones((30, 5), np.float32)).SerializeToString()
    path.write_bytes(data[: len(data) - kept])
    with pytest.raises(ConfigError, match=rf"model\.onnx = .{len(data) - kept} bytes .*copy it"):
        read_onnx(path)


def test_a_file_too_large_for_the_format_is_refused_unread(path: Path) -> None:
    """Beyond 2 GB a model keeps its weights elsewhere; it is refused without being read."""
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ConfigError, match=r"1099511627776 bytes.*at most 2147483647 bytes"):
        read_onnx(path)


def test_a_pointer_and_what_is_no_file_are_told(path: Path) -> None:
    """What stands for a model in Git is told how to be fetched; a pipe is not waited for."""
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(ConfigError, match="git lfs pull"):
        read_onnx(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="an existing ONNX file"):
        read_onnx(path)


def test_the_format_is_that_of_the_bytes(tmp_path: Path) -> None:
    """A file is no JSON for its name."""
    path = tmp_path / "model.json"
    weight = numpy_helper.to_array(model(np.ones((3, 5), np.float32)).graph.initializer[0])
    path.write_bytes(model(weight).SerializeToString())
    assert ["w"] == [tensor.name for tensor in read_onnx(path).graph.initializer]
