"""Access to parts of ONNX models, such as sizes of tensors and attributes of nodes.

Does not use the runtime.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any

from onnx import GraphProto, ModelProto, StringStringEntryProto, TensorProto, helper

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onnx import AttributeProto, NodeProto, ValueInfoProto

__all__ = [
    "DATATYPES",
    "Attribute",
    "Dim",
    "as_input",
    "attributes",
    "digest",
    "dims",
    "graph_digests",
    "in_file",
    "inputs_of",
    "is_inline",
    "replaced",
    "size_bytes",
    "subgraphs",
    "taken",
    "without_value",
]

Attribute = int | float | str | tuple[int, ...] | tuple[float, ...]
Dim = int | str | None

_INLINE_BYTES = 1024  # constants up to this size keep their values, since shapes are made from them
_DIGITS = 6  # digits of an attribute

# ONNX's numbers of datatypes -> our name, bytes of an element.
DATATYPES: dict[int, tuple[str, float]] = {
    1: ("f32", 4),
    2: ("u8", 1),
    3: ("i8", 1),
    4: ("u16", 2),
    5: ("i16", 2),
    6: ("i32", 4),
    7: ("i64", 8),
    8: ("str", 32),
    9: ("bool", 1),
    10: ("f16", 2),
    11: ("f64", 8),
    12: ("u32", 4),
    13: ("u64", 8),
    16: ("bf16", 2),
    21: ("u4", 0.5),
    22: ("i4", 0.5),
}


def dims(value: ValueInfoProto) -> tuple[Dim, ...] | None:
    """Return the sizes or names of a tensor's dimensions; None if the file has no shape."""
    form = value.type.tensor_type
    if not form.HasField("shape"):
        return None
    return tuple(
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
        for dim in form.shape.dim
    )


def attributes(node: NodeProto) -> dict[str, Attribute]:
    """Return a node's attributes by name, except tensors, graphs and lists of strings."""
    values = {each.name: _attribute(each) for each in node.attribute}
    return {name: value for name, value in values.items() if value is not None}


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the graphs of a branch or a loop."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def taken(node: NodeProto) -> Iterator[str]:
    """Yield the names of all tensors that a node takes, including those within its graphs."""
    yield from filter(None, node.input)
    for graph in subgraphs(node):
        for inner in graph.node:
            yield from taken(inner)
        yield from (value.name for value in graph.output)


def inputs_of(node: NodeProto) -> list[str]:
    """Return the names of a node's inputs, then of the outer tensors that its graphs take."""
    made = {name for graph in subgraphs(node) for name in _made(graph)}.union(node.input)
    return [*node.input, *dict.fromkeys(name for name in taken(node) if name not in made)]


def digest(graph: GraphProto) -> str:
    """Return a digest of the graph of a branch or a loop, independent of tensor names."""
    nodes = [
        (node.domain, node.op_type, sorted(attributes(node).items()), graph_digests(node))
        for node in graph.node
    ]
    shapes = [(tensor.data_type, tuple(tensor.dims)) for tensor in graph.initializer]
    return hashlib.sha256(repr((nodes, shapes)).encode()).hexdigest()[:12]


def graph_digests(node: NodeProto) -> dict[str, str]:
    """Return the digests of a node's graphs, by attribute."""
    return {each.name: digest(each.g) for each in node.attribute if each.HasField("g")}


def _made(graph: GraphProto) -> Iterator[str]:
    """Yield the names of all tensors that are local to a graph."""
    yield from (value.name for value in graph.input)
    yield from (tensor.name for tensor in graph.initializer)
    for node in graph.node:
        yield from node.output
        for inner in subgraphs(node):
            yield from _made(inner)


def size_bytes(tensor: TensorProto) -> int:
    """Return the size of a constant's values in bytes."""
    return int(DATATYPES.get(tensor.data_type, ("", 4))[1] * math.prod(tensor.dims))


def is_inline(tensor: TensorProto) -> bool:
    """Return whether a constant is small and has its values in the model."""
    return size_bytes(tensor) <= _INLINE_BYTES and tensor.data_location != TensorProto.EXTERNAL


def without_value(name: str, like: TensorProto, dims: Iterable[int]) -> TensorProto:
    """Return a constant with the datatype of ``like`` and no values."""
    place = TensorProto.EXTERNAL
    return TensorProto(name=name, data_type=like.data_type, dims=dims, data_location=place)


def in_file(tensor: TensorProto, name: str) -> TensorProto:
    """Return a constant whose values are at the start of the file ``name``."""
    external = without_value(tensor.name, tensor, tensor.dims)
    entries = {"location": name, "offset": "0", "length": str(size_bytes(tensor))}
    for key, value in entries.items():
        external.external_data.append(StringStringEntryProto(key=key, value=value))
    return external


def as_input(tensor: TensorProto) -> ValueInfoProto:
    """Return an input with the name, datatype and shape of a constant."""
    return helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))


def replaced(model: ModelProto, **parts: Any) -> ModelProto:  # noqa: ANN401  of a GraphProto
    """Return the model with some parts of its graph replaced, without copying the old ones."""
    around = {field.name: value for field, value in model.ListFields() if field.name != "graph"}
    kept = {field.name: value for field, value in model.graph.ListFields()}
    return ModelProto(**around, graph=GraphProto(**(kept | parts)))


def _attribute(attribute: AttributeProto) -> Attribute | None:
    if attribute.HasField("s"):
        return attribute.s.decode(errors="replace")  # any bytes
    if attribute.HasField("i"):
        return attribute.i
    if attribute.HasField("f"):
        return round(attribute.f, _DIGITS)
    floats = tuple(round(number, _DIGITS) for number in attribute.floats)
    return floats or tuple(attribute.ints) or None
