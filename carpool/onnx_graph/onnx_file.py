"""ONNX files, read for their structure: nodes, tensors' forms, inputs; weights are stepped over.

Reading 100 MB of weights would take longer than everything a prediction does. Small constants keep
their bytes, since shapes are made from them. Knows no runtime.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from carpool.onnx_graph.protobuf import Field, bytes_field, fields, integers, number_field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "DATATYPES",
    "Attribute",
    "Dim",
    "OnnxFile",
    "OnnxNode",
    "Tensor",
    "Value",
    "Written",
    "read",
    "write",
]

Attribute = int | float | str | tuple[int, ...] | tuple[float, ...]
Dim = int | str | None

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
_INLINE_BYTES = 1024  # constants up to this size keep their values
_RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 9, 13, 14
_DATA_FIELDS = frozenset({4, 5, 6, 7, _RAW_DATA, 10, 11, _EXTERNAL_DATA, _DATA_LOCATION})
_IR_VERSION, _GRAPH, _OPSETS = 1, 7, 8  # before IR version 4, weights had to be inputs too
_NODES, _INITIALIZERS, _INPUTS, _OUTPUTS, _VALUES = 1, 5, 11, 12, 13


class Tensor(NamedTuple):
    """A constant: its datatype by ONNX's number, its sizes, and where its values are."""

    name: str
    datatype: int
    dims: tuple[int, ...]
    location: str
    encoded: memoryview

    @property
    def size_bytes(self) -> int:
        """Of its values."""
        size = DATATYPES.get(self.datatype, ("", 4))[1]
        for dim in self.dims:
            size *= dim
        return int(size)


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """An operator of the graph; of its attributes, graphs and tensors are only told by name."""

    name: str
    operator: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    subgraphs: tuple[str, ...]
    encoded: memoryview


class Value(NamedTuple):
    """An input or output of the graph; ``dims`` is None where the file does not say."""

    name: str
    datatype: int
    dims: tuple[Dim, ...] | None


@dataclass(frozen=True, slots=True)
class OnnxFile:
    """The parts of a model file.

    Attributes:
        nodes: In the file's order, which is an order of execution.
        tensors: Constants by name.
        inputs: What a caller gives; constants that are listed as inputs too are not among them.
        outputs: What a caller gets.
        opsets: Version by domain.
        model_fields: Everything around the graph, as it stands in the file.
        graph_fields: Everything in the graph that the parts above do not tell.
    """

    nodes: Sequence[OnnxNode]
    tensors: Mapping[str, Tensor]
    inputs: Sequence[Value]
    outputs: Sequence[Value]
    opsets: Mapping[str, int] = field(default_factory=dict)
    model_fields: bytes = b""
    graph_fields: bytes = b""


def read(data: memoryview) -> OnnxFile:
    """The parts of a model.

    Raises:
        MalformedError: the bytes are no model.
    """
    graph = memoryview(b"")
    around, opsets = [], {}
    for part in fields(data):
        if part.number == _GRAPH:
            graph = part.bytes()
            continue
        around.append(data[part.start : part.end])
        if part.number == _IR_VERSION:
            around.append(memoryview(number_field(_IR_VERSION, max(4, part.integer()))))
        if part.number == _OPSETS:
            entry = {f.number: f for f in fields(part.bytes())}
            domain = entry[1].text() if 1 in entry else ""
            opsets[domain] = entry[2].integer() if 2 in entry else 1  # noqa: PLR2004  field 2
    return _graph(graph, opsets, b"".join(around))


def _graph(graph: memoryview, opsets: Mapping[str, int], around: bytes) -> OnnxFile:
    nodes, tensors, inputs, outputs, rest = [], {}, [], [], []
    for part in fields(graph):
        if part.number == _NODES:
            nodes.append(_node(part.bytes()))
        elif part.number == _INITIALIZERS:
            tensor = _tensor(part.bytes())
            tensors[tensor.name] = tensor
        elif part.number == _INPUTS:
            inputs.append(_value(part.bytes()))
        elif part.number == _OUTPUTS:
            outputs.append(_value(part.bytes()))
        elif part.number != _VALUES:
            rest.append(graph[part.start : part.end])
    given = [value for value in inputs if value.name not in tensors]
    return OnnxFile(nodes, tensors, given, outputs, opsets, around, b"".join(rest))


class Written(NamedTuple):
    """A model as bytes, and the size of the one file of zeros that all its weights refer to."""

    model: bytes
    weights_bytes: int


def write(
    file: OnnxFile,
    inputs: Sequence[Value],
    outputs: Sequence[str],
    weights: str | None = None,
    *,
    inline: bool = False,
) -> Written:
    """The model with other inputs and outputs.

    Args:
        file: The model.
        inputs: Its inputs.
        outputs: Names of outputs; what the file says of those it has is kept.
        weights: Name of the file that weights shall refer to; None makes them inputs.
        inline: Leave the weights as they are instead.
    """
    parts = [bytes_field(_NODES, node.encoded) for node in file.nodes]
    largest = 0
    extra: list[Value] = []
    for tensor in file.tensors.values():
        if inline or (tensor.size_bytes <= _INLINE_BYTES and not tensor.location):
            parts.append(bytes_field(_INITIALIZERS, tensor.encoded))
        elif weights is None:
            extra.append(Value(tensor.name, tensor.datatype, tensor.dims))
        else:
            parts.append(bytes_field(_INITIALIZERS, _elsewhere(tensor, weights)))
            largest = max(largest, tensor.size_bytes)
    parts += [bytes_field(_INPUTS, _encoded(value)) for value in (*inputs, *extra)]
    known = {value.name: value for value in file.outputs}
    for name in outputs:
        value = known.get(name)
        text = _encoded(value) if value else bytes_field(1, name.encode())
        parts.append(bytes_field(_OUTPUTS, text))
    graph = bytes_field(_GRAPH, file.graph_fields, *parts)
    return Written(file.model_fields + graph, largest)


def _elsewhere(tensor: Tensor, weights: str) -> bytes:
    kept = [
        tensor.encoded[f.start : f.end]
        for f in fields(tensor.encoded)
        if f.number not in _DATA_FIELDS
    ]
    entries = {"location": weights, "offset": "0", "length": str(tensor.size_bytes)}
    for key, value in entries.items():
        entry = bytes_field(1, key.encode()) + bytes_field(2, value.encode())
        kept.append(memoryview(bytes_field(_EXTERNAL_DATA, entry)))
    return b"".join([*kept, number_field(_DATA_LOCATION, 1)])


def _node(data: memoryview) -> OnnxNode:
    texts: dict[int, list[str]] = {1: [], 2: [], 3: [], 4: [], 7: []}
    attributes: dict[str, Attribute] = {}
    subgraphs = []
    for part in fields(data):
        if part.number in texts:
            texts[part.number].append(part.text())
        elif part.number == 5:  # noqa: PLR2004  attribute
            name, value, is_graph = _attribute(part.bytes())
            if is_graph:
                subgraphs.append(name)
            elif value is not None:
                attributes[name] = value
    name, operator, domain = ("".join(texts[number][-1:]) for number in (3, 4, 7))
    ends = tuple(texts[1]), tuple(texts[2])
    return OnnxNode(name, operator, domain, *ends, attributes, tuple(subgraphs), data)


def _attribute(data: memoryview) -> tuple[str, Attribute | None, bool]:
    name, is_graph = "", False
    value: Attribute | None = None
    floats: list[float] = []
    whole: list[int] = []
    for part in fields(data):
        match part.number:
            case 1:
                name = part.text()
            case 2:
                value = round(struct.unpack("<f", part.bytes())[0], 6)
            case 3:
                value = part.integer()
            case 4:
                value = part.text()
            case 6 | 11:
                is_graph = True
            case 7:
                floats += [round(x[0], 6) for x in struct.iter_unpack("<f", part.bytes())]
            case 8:
                whole += integers(part)
            case _:
                pass
    return name, value if value is not None else tuple(floats) or tuple(whole) or None, is_graph


def _tensor(data: memoryview) -> Tensor:
    name = location = ""
    datatype = 0
    dims: list[int] = []
    for part in fields(data):
        match part.number:
            case 1:
                dims += integers(part)
            case 2:
                datatype = part.integer()
            case 8:
                name = part.text()
            case 13:
                entry = {f.number: f.text() for f in fields(part.bytes())}
                location = entry.get(2, "") if entry.get(1) == "location" else location
            case _:
                pass
    return Tensor(name, datatype, tuple(dims), location, data)


def _value(data: memoryview) -> Value:
    name, kind = "", memoryview(b"")
    for part in fields(data):
        if part.number == 1:
            name = part.text()
        elif part.number == 2:  # noqa: PLR2004  type
            kind = next((f.bytes() for f in fields(part.bytes()) if f.number == 1), kind)
    datatype, dims = 0, None
    for part in fields(kind):
        if part.number == 1:
            datatype = part.integer()
        elif part.number == 2:  # noqa: PLR2004  shape
            dims = tuple(_dim(f) for f in fields(part.bytes()) if f.number == 1)
    return Value(name, datatype, dims)


def _dim(part: Field) -> Dim:
    found: Dim = None
    for inner in fields(part.bytes()):
        if inner.number == 1:
            found = inner.integer()
        elif inner.number == 2:  # noqa: PLR2004  dim_param
            found = inner.text() or None
    return found


def _encoded(value: Value) -> bytes:
    dims = []
    for dim in value.dims or ():
        if isinstance(dim, int):
            dims.append(bytes_field(1, number_field(1, dim)))
        else:
            dims.append(bytes_field(1, bytes_field(2, dim.encode()) if dim else b""))
    shape = b"" if value.dims is None else bytes_field(2, *dims)
    tensor = number_field(1, value.datatype) + shape
    return bytes_field(1, value.name.encode()) + bytes_field(2, bytes_field(1, tensor))
