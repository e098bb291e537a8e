"""Prepares a model file: named nodes, the batch as its only free dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto

from carpool.errors import ConfigError, Problem
from carpool.onnx_graph.parts import dims, size_bytes
from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from onnx import GraphProto, ModelProto, ValueInfoProto

    from carpool.onnx_graph.parts import Dim

__all__ = [
    "BATCH",
    "LARGEST_FILE_BYTES",
    "check_onnx",
    "outputs_left_out",
    "read_onnx",
    "refuse_control_flow",
    "without_batch_axis",
]

BATCH = "batch"
_UNNAMED = "?"  # written by exporters for a dimension without a name
_GIT_LFS = b"version https://git-lfs"
_CONTROL = frozenset({"If", "Loop", "Scan", "SequenceMap"})
_IR_VERSION_LEAST = 4  # in earlier versions, weights had to be inputs as well
LARGEST_FILE_BYTES = (1 << 31) - 1  # of a protocol buffer
_LARGEST_BYTES = 1 << 43  # of a constant: no file can be larger


def read_onnx(path: Path, sizes: Mapping[str, int] | None = None) -> ModelProto:
    """Read a model, name its batch `BATCH` and its nodes, and set other free dimensions.

    Weights in separate files are not read; constants that are listed as inputs are removed from the
    inputs.

    Args:
        path: The file.
        sizes: Sizes of free dimensions other than the batch, by name.

    Raises:
        ConfigError: the file is missing or not a model, a free dimension has no size, an input has
            no shape, or a size has no dimension.
    """
    model = _parsed(path)
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    del graph.input[:], graph.value_info[:]  # the shapes of other tensors are for other sizes
    graph.input.extend(inputs)
    model.ir_version = max(_IR_VERSION_LEAST, model.ir_version)
    _give_sizes(path, graph, sizes or {})
    _name_nodes(graph)
    return model


def check_onnx(path: Path) -> None:
    """Check that a file is a model, without its weights if they are in separate files.

    Raises:
        ConfigError: the file is missing or not a model.
    """
    _parsed(path)


def without_batch_axis(path: Path) -> list[tuple[str, tuple[Dim, ...]]]:
    """Return inputs and outputs whose first axis is fixed, or that are scalars, with their shapes.

    They are named like ``input x``. Constants do not count as inputs; unknown shapes are left out.

    Raises:
        ConfigError: the file is missing or not a model.
    """
    graph = _parsed(path).graph
    constants = {tensor.name for tensor in graph.initializer}
    values = [("input", value) for value in graph.input if value.name not in constants]
    values += [("output", value) for value in graph.output]
    shapes = [(f"{kind} {value.name}", dims(value)) for kind, value in values]
    return [
        (name, shape)
        for name, shape in shapes
        if shape is not None and (not shape or (isinstance(shape[0], int) and shape[0] > 0))
    ]


def outputs_left_out(path: Path) -> list[str]:
    """Return the names of outputs that are no tensors, such as sequences and maps.

    Raises:
        ConfigError: the file is missing or not a model.
    """
    outputs = _parsed(path).graph.output
    others = {"sequence_type", "map_type", "optional_type", "sparse_tensor_type"}
    return [value.name for value in outputs if value.type.WhichOneof("value") in others]


def refuse_control_flow(path: Path, graph: GraphProto) -> None:
    """Refuse models whose time depends on values.

    Raises:
        ConfigError: there is a loop or a branch.
    """
    for node in graph.node:
        subgraphs = (each.HasField("g") or each.graphs for each in node.attribute)
        if node.op_type in _CONTROL or any(subgraphs):
            raise ConfigError(
                [
                    Problem(
                        str(path),
                        f"operator {node.op_type} ({node.name or 'unnamed'})",
                        "a graph without control flow, whose execution time does not depend "
                        "on values",
                        "carpool profile measures the whole model; a latency table can hold the "
                        "result",
                    )
                ]
            )


def _parsed(path: Path) -> ModelProto:
    try:
        size = path.stat().st_size if path.is_file() else None
        model, fault = _loaded(path, size) if size is not None else (None, "")
    except OSError as error:
        expected = "an existing ONNX file"
        raise ConfigError([Problem("model", str(path), expected, f"{error.strerror}")]) from error
    if model is None:
        raise ConfigError([Problem("model", str(path), "an existing ONNX file")])
    if fault:
        hint = _fetching(path) or "export or copy it again"
        raise ConfigError(
            [Problem("model", str(path), f"an ONNX model; it has {size} bytes: {fault}", hint)]
        )
    if not model.graph.node:
        raise ConfigError(
            [Problem("model", str(path), "an ONNX model with operators", _fetching(path))]
        )
    return model


def _loaded(path: Path, size: int) -> tuple[ModelProto, str]:
    """Return a model, and what is wrong with it; empty if nothing is."""
    if size > LARGEST_FILE_BYTES:
        expected = f"an ONNX model of at most {LARGEST_FILE_BYTES} bytes; it has {size} bytes"
        hint = "export it with its weights in a separate file"
        raise ConfigError([Problem("model", str(path), expected, hint)])
    try:
        model = onnx.load(path, format="protobuf", load_external_data=False)
    except DecodeError as error:
        return onnx.ModelProto(), str(error)
    return model, _fault(model.graph)


def _fetching(path: Path) -> str:
    """Return how to fetch the model if the file is only a pointer to it; else empty."""
    with path.open("rb") as file:
        is_pointer = file.read(len(_GIT_LFS)) == _GIT_LFS
    return "it is a Git LFS pointer: run git lfs pull" if is_pointer else ""


def _fault(graph: GraphProto) -> str:
    """Return a fault of the file that parsing does not detect; empty if there is none."""
    if any(isinstance(name, bytes) for name in _names(graph)):  # names that are not UTF-8 are bytes
        return "a name that is not UTF-8"
    for tensor in graph.initializer:
        if min(tensor.dims, default=0) < 0 or size_bytes(tensor) > _LARGEST_BYTES:
            return f"the constant {tensor.name[:80]!r} has impossible sizes"
    return ""


def _names(graph: GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
    yield from (tensor.name for tensor in graph.initializer)
    for value in (*graph.input, *graph.output):
        yield value.name
        yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)


def _give_sizes(path: Path, graph: GraphProto, sizes: Mapping[str, int]) -> None:
    problems = Problems()
    if not graph.input:
        problems.add(f"{path}: inputs", "none", "an input whose first dimension is the batch")
    free = list(dict.fromkeys(name for value in graph.input for name in _free(value)))
    named = {name for value in graph.input for name in _other_names(value)}
    for value in graph.input:
        _give_size(path, value, sizes, problems)
    for name in sorted(set(sizes) - set(free) - named):
        listed = ", ".join(free) or "none"
        problems.add(
            f"{path}: dimension", name, f"a free dimension of the model, which has {listed}"
        )
    problems.raise_if_any()


def _free(value: ValueInfoProto) -> list[str]:
    """Return the names of its free dimensions; those without a name are named by position."""
    return [_dim_name(dim, value, at) for at, dim in _free_dims(value)]


def _other_names(value: ValueInfoProto) -> list[str]:
    """Return further accepted names: all positions, and the names in the file."""
    free = list(_free_dims(value))
    return [*(f"{value.name}.{at}" for at, _ in free), *(str(dim) for _, dim in free)]


def _free_dims(value: ValueInfoProto) -> Iterator[tuple[int, Dim]]:
    for at, dim in enumerate(dims(value) or ()):
        if not isinstance(dim, int) or (dim <= 0 and not at):
            yield at, dim


def _dim_name(dim: Dim, value: ValueInfoProto, at: int) -> str:
    return dim if isinstance(dim, str) and dim != _UNNAMED else f"{value.name}.{at}"


def _give_size(
    path: Path, value: ValueInfoProto, sizes: Mapping[str, int], problems: Problems
) -> None:
    name, form = f"{path}: input {value.name!r}", value.type.tensor_type
    known = dims(value)
    if known is None or not form.elem_type:
        expected = "a tensor with a shape, its batch first"
        problems.add(name, "no shape", expected, "export the model with shapes")
        return
    if form.elem_type not in TensorProto.DataType.values():
        problems.add(name, f"datatype {form.elem_type}", "an ONNX data type", "export it again")
        return
    for at, (dim, place) in enumerate(zip(known, form.shape.dim, strict=True)):
        free = _dim_name(dim, value, at)
        if isinstance(dim, int) and (dim > 0 or at):
            continue
        size = sizes.get(f"{value.name}.{at}", sizes.get(free, sizes.get(str(dim))))
        if size is not None:
            place.dim_value = size
        elif at == 0:
            place.dim_param = BATCH
        else:
            problems.add(name, f"free dimension {free!r}", "a size", f"set --dim {free}=SIZE")


def _name_nodes(graph: GraphProto) -> None:
    """Give every node a unique name, by which measurements find it."""
    taken: set[str] = set()
    for at, node in enumerate(graph.node):
        if not node.name or node.name in taken:
            name = f"{node.op_type}_{at}"
            while name in taken:
                name += "_"
            node.name = name
        taken.add(node.name)
