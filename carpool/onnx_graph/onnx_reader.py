"""ONNX files, read for their structure: nodes, tensors' forms, inputs; weights are stepped over.

Reading 100 MB of weights would take longer than everything a prediction does. Small constants keep
their bytes, since shapes are made from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.onnx_graph import onnx_file
from carpool.onnx_graph.onnx_file import OnnxFile, OnnxNode, Tensor, Value
from carpool.onnx_graph.protobuf import (
    Field,
    MalformedError,
    fields,
    floats,
    integers,
    number_field,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.onnx_graph.onnx_file import Attribute, Dim

__all__ = ["read"]

_IR_VERSION_LEAST = 4  # before, weights had to be inputs too
_LARGEST_BYTES = 1 << 43  # of a constant: no file can be larger


def read(data: memoryview) -> OnnxFile:
    """The parts of a model.

    Raises:
        MalformedError: the bytes are no model.
    """
    graph = memoryview(b"")
    around, opsets = [], {}
    for part in fields(data):
        if part.number == onnx_file.GRAPH:
            graph = part.bytes()
            continue
        around.append(data[part.start : part.end])
        if part.number == onnx_file.IR_VERSION:
            version = max(_IR_VERSION_LEAST, part.integer())
            around.append(memoryview(number_field(onnx_file.IR_VERSION, version)))
        if part.number == onnx_file.OPSETS:
            entry = {f.number: f for f in fields(part.bytes())}
            domain = entry[1].text() if 1 in entry else ""
            opsets[domain] = entry[2].integer() if 2 in entry else 1  # noqa: PLR2004  field 2
    return _graph(graph, opsets, b"".join(around))


def _graph(graph: memoryview, opsets: Mapping[str, int], around: bytes) -> OnnxFile:
    nodes, tensors, inputs, outputs, rest = [], {}, [], [], []
    for part in fields(graph):
        if part.number == onnx_file.NODES:
            nodes.append(_node(part.bytes()))
        elif part.number == onnx_file.INITIALIZERS:
            tensor = _tensor(part.bytes())
            tensors[tensor.name] = tensor
        elif part.number == onnx_file.INPUTS:
            inputs.append(_value(part.bytes()))
        elif part.number == onnx_file.OUTPUTS:
            outputs.append(_value(part.bytes()))
        elif part.number != onnx_file.VALUES:
            rest.append(graph[part.start : part.end])
    given = [value for value in inputs if value.name not in tensors]
    return OnnxFile(nodes, tensors, given, outputs, opsets, around, b"".join(rest))


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
    parts: list[float] = []
    whole: list[int] = []
    for part in fields(data):
        match part.number:
            case 1:
                name = part.text()
            case 2:
                value = next((round(number, 6) for number in floats(part)), None)
            case 3:
                value = part.integer()
            case 4:
                value = bytes(part.bytes()).decode(errors="replace")  # any bytes
            case 6 | 11:
                is_graph = True
            case 7:
                parts += [round(number, 6) for number in floats(part)]
            case 8:
                whole += integers(part)
            case _:
                pass
    return name, value if value is not None else tuple(parts) or tuple(whole) or None, is_graph


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
    tensor = Tensor(name, datatype, tuple(dims), location, data)
    if min(dims, default=0) < 0 or tensor.size_bytes > _LARGEST_BYTES:
        msg = f"the constant {name[:80]!r} has impossible sizes"
        raise MalformedError(msg)
    return tensor


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
