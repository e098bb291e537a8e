"""ONNX files prepared for analysis by batch size, and files that are not models."""

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
    """Path of the model file."""
    return tmp_path / "model.onnx"


def test_a_model_has_one_free_dimension_and_names(path: Path) -> None:
    """The batch dimension is renamed, constants are no inputs, and every node has a unique name."""
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
    """Sizes are given by name, or by input and position; unknown names are refused."""
    made = model(np.ones((3, 5), np.float32))
    made.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [0, "t", None]))
    onnx.save(made, path)
    read = read_onnx(path, {"t": 7, "z.2": 9})
    assert ("batch", 7, 9) == dims(read.graph.input[1])
    with pytest.raises(ConfigError, match=r"free dimension 't'.*--dim t=SIZE[^$]*--dim z\.2=SIZE"):
        read_onnx(path)
    with pytest.raises(ConfigError, match=r"'width': expected a free dimension of the model"):
        read_onnx(path, {"t": 7, "z.2": 9, "width": 1})


def test_unnamed_dimensions_are_sized_by_position(path: Path) -> None:
    """Each ``?`` has its own size by position, and a size by position overrides one by name."""
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
def test_unsupported_input_is_refused_by_name(path: Path, datatype: int, told: str) -> None:
    """An input for which no data can be generated is refused by name."""
    made = model(np.ones((3, 5), np.float32))
    made.graph.input[0].type.tensor_type.elem_type = datatype
    onnx.save(made, path)
    with pytest.raises(ConfigError, match=rf"input 'x' = '{told}'"):
        read_onnx(path)


def test_a_model_without_inputs_is_refused(path: Path) -> None:
    """Nothing of it depends on a batch."""
    made = model(np.ones((3, 5), np.float32))
    del made.graph.input[:]
    onnx.save(made, path)
    with pytest.raises(ConfigError, match="expected an input whose first dimension is the batch"):
        read_onnx(path)


def test_missing_external_weights_are_accepted(path: Path) -> None:
    """A model whose weights are in a missing file can be read for its structure."""
    made = model(np.ones((300, 5), np.float32))
    onnx.external_data_helper.convert_model_to_external_data(made, location="w", size_threshold=0)
    onnx.save(made, path)
    (path.parent / "w").unlink()
    assert (300, 5) == tuple(read_onnx(path).graph.initializer[0].dims)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_do_not_crash_the_reader(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    """Any file is either read or refused."""
    path = tmp_path_factory.getbasetemp() / "any.onnx"
    path.write_bytes(data)
    try:
        read_onnx(path)
    except ConfigError:
        return


@pytest.mark.parametrize("kept", [1, 10, 100, 150])
def test_a_file_cut_short_is_refused(path: Path, kept: int) -> None:
    """A truncated model is refused with its size and advice."""
    data = model(np.ones((30, 5), np.float32)).SerializeToString()
    path.write_bytes(data[: len(data) - kept])
    with pytest.raises(ConfigError, match=rf"model\.onnx.* {len(data) - kept} bytes.*copy it"):
        read_onnx(path)


def test_oversized_file_is_refused_without_reading(path: Path) -> None:
    """A file above the format's 2 GB limit is refused without being read."""
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ConfigError, match=r"at most 2147483647 bytes.* 1099511627776 bytes"):
        read_onnx(path)


def test_lfs_pointer_and_pipe_are_refused(path: Path) -> None:
    """A Git LFS pointer is refused with advice, and a pipe without waiting for it."""
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(ConfigError, match="git lfs pull"):
        read_onnx(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="an existing ONNX file"):
        read_onnx(path)


def test_format_is_detected_from_content(tmp_path: Path) -> None:
    """The format is detected from the content, not from the file name."""
    path = tmp_path / "model.json"
    weight = numpy_helper.to_array(model(np.ones((3, 5), np.float32)).graph.initializer[0])
    path.write_bytes(model(weight).SerializeToString())
    assert ["w"] == [tensor.name for tensor in read_onnx(path).graph.initializer]
