"""The weights of a model file: which separate files contain them, and their total size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
from onnx import TensorProto

from carpool.onnx_graph.parts import size_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onnx import GraphProto, NodeProto

__all__ = ["weight_bytes", "weight_files"]


def weight_files(path: Path) -> list[str]:
    """Return the names of separate weight files, relative to the model's folder.

    Raises:
        DecodeError: the file is no ONNX model.
    """
    external = (each for each in _tensors(path) if each.data_location == TensorProto.EXTERNAL)
    places = (entry for each in external for entry in each.external_data)
    return list(dict.fromkeys(entry.value for entry in places if entry.key == "location"))


def weight_bytes(path: Path) -> int:
    """Return the size of all weights in bytes, including those in separate files.

    Raises:
        DecodeError: the file is no ONNX model.
    """
    return sum(size_bytes(each) for each in _tensors(path) if each.data_type)


def _tensors(path: Path) -> Iterator[TensorProto]:
    model = onnx.load(path, format="protobuf", load_external_data=False)
    yield from _of_graph(model.graph)
    for function in model.functions:
        for node in function.node:
            yield from _of_node(node)


def _of_graph(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        yield from _of_node(node)


def _of_node(node: NodeProto) -> Iterator[TensorProto]:
    for attribute in node.attribute:
        yield from (attribute.t, *attribute.tensors)  # an empty one where there is none
        for graph in (attribute.g, *attribute.graphs):
            yield from _of_graph(graph)
