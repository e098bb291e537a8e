"""A model file made ready for questions about batches: named nodes, one batch, no other freedom."""

from __future__ import annotations

import mmap
from dataclasses import replace
from typing import TYPE_CHECKING

from carpool.errors import ConfigError, Problem
from carpool.onnx_graph import onnx_reader
from carpool.onnx_graph.protobuf import MalformedError, bytes_field
from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from carpool.onnx_graph.onnx_file import Dim, OnnxFile, OnnxNode, Value

__all__ = ["BATCH", "read_file", "refuse_control_flow", "with_sizes"]

BATCH = "batch"
_NODE_NAME = 3
_GIT_LFS = b"version https://git-lfs"
_CONTROL = frozenset({"If", "Loop", "Scan", "SequenceMap"})


def with_sizes(path: Path, file: OnnxFile, sizes: Mapping[str, int]) -> OnnxFile:
    """The model with its batch called `BATCH`, other free dimensions given, and nodes named.

    Raises:
        ConfigError: a free dimension has no size, an input no shape, or a size no dimension.
    """
    problems = Problems()
    inputs = [_fixed(path, value, sizes, problems) for value in file.inputs]
    free = list(dict.fromkeys(name for value in file.inputs for name in _free(value)))
    for name in sorted(set(sizes) - set(free)):
        listed = ", ".join(free) or "none"
        problems.add(
            f"{path}: dimension", name, f"a free dimension of the model, which has {listed}"
        )
    problems.raise_if_any()
    return replace(file, inputs=inputs, nodes=_named(file))


def refuse_control_flow(path: Path, file: OnnxFile) -> None:
    """Refuse models whose time depends on values.

    Raises:
        ConfigError: there is a loop or a branch.
    """
    found = [node for node in file.nodes if node.operator in _CONTROL or node.subgraphs]
    if not found:
        return
    raise ConfigError(
        [
            Problem(
                str(path),
                f"operator {found[0].operator} ({found[0].name or 'unnamed'})",
                "a graph without control flow, whose time does not depend on values",
                "carpool profile measures the whole model; a latency table can hold the result",
            )
        ]
    )


def read_file(path: Path) -> OnnxFile:
    """The parts of a model file.

    Raises:
        ConfigError: the file is missing or no model.
    """
    expected = "an existing ONNX file"
    try:
        data = _mapped(path) if path.is_file() else None
    except OSError as error:
        raise ConfigError([Problem("model", str(path), expected, f"{error.strerror}")]) from error
    if data is None:
        raise ConfigError([Problem("model", str(path), expected)])
    is_pointer = bytes(data[: len(_GIT_LFS)]) == _GIT_LFS
    hint = "it is a Git LFS pointer: run git lfs pull" if is_pointer else ""
    try:
        file = onnx_reader.read(data)
    except MalformedError as error:
        given = f"{len(data)} bytes ({error})"
        raise ConfigError(
            [Problem(str(path), given, "an ONNX model", hint or "export or copy it again")]
        ) from error
    if not file.nodes:
        raise ConfigError([Problem(str(path), "no operators", "an ONNX model", hint)])
    return file


def _mapped(path: Path) -> memoryview:
    """The file's bytes, of which the weights' are never fetched."""
    with path.open("rb") as file:
        empty = not path.stat().st_size
        return memoryview(b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _free(value: Value) -> list[str]:
    """The names under which its free dimensions may have sizes."""
    return [
        dim if isinstance(dim, str) else f"{value.name}.{at}"
        for at, dim in enumerate(value.dims or ())
        if not isinstance(dim, int) or (dim <= 0 and not at)
    ]


def _fixed(path: Path, value: Value, sizes: Mapping[str, int], problems: Problems) -> Value:
    name = f"{path}: input {value.name!r}"
    if value.dims is None or not value.datatype:
        expected = "a tensor with a shape, its batch first"
        problems.add(name, "no shape", expected, "export the model with shapes")
        return value
    dims: list[Dim] = []
    for at, dim in enumerate(value.dims):
        known = sizes.get(dim) if isinstance(dim, str) else sizes.get(f"{value.name}.{at}")
        if isinstance(dim, int) and (dim > 0 or at):
            dims.append(dim)
        elif known is not None:
            dims.append(known)
        elif at == 0:
            dims.append(BATCH)
        else:
            free = dim if isinstance(dim, str) else f"{value.name}.{at}"
            problems.add(name, f"free dimension {free!r}", "a size", f"say --dim {free}=SIZE")
    return value._replace(dims=tuple(dims))


def _named(file: OnnxFile) -> list[OnnxNode]:
    """Nodes whose names are there and differ, so that measurements find them."""
    taken: set[str] = set()
    nodes = []
    for at, node in enumerate(file.nodes):
        name = node.name if node.name and node.name not in taken else f"{node.operator}_{at}"
        while name in taken:
            name += "_"
        taken.add(name)
        if name != node.name:
            encoded = memoryview(bytes(node.encoded) + bytes_field(_NODE_NAME, name.encode()))
            node = replace(node, name=name, encoded=encoded)  # noqa: PLW2901
        nodes.append(node)
    return nodes
