"""ONNX files, written from their parts: with other inputs and outputs, and weights elsewhere.

What is not changed is written byte by byte as it was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from carpool.onnx_graph import onnx_file
from carpool.onnx_graph.onnx_file import Value
from carpool.onnx_graph.protobuf import bytes_field, fields, number_field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.onnx_graph.onnx_file import OnnxFile, Tensor

__all__ = ["Written", "write"]

_INLINE_BYTES = 1024  # constants up to this size keep their values
_RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 9, 13, 14
_DATA_FIELDS = frozenset({4, 5, 6, 7, _RAW_DATA, 10, 11, _EXTERNAL_DATA, _DATA_LOCATION})


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
    parts = [bytes_field(onnx_file.NODES, node.encoded) for node in file.nodes]
    largest = 0
    extra: list[Value] = []
    for tensor in file.tensors.values():
        if inline or (tensor.size_bytes <= _INLINE_BYTES and not tensor.location):
            parts.append(bytes_field(onnx_file.INITIALIZERS, tensor.encoded))
        elif weights is None:
            extra.append(Value(tensor.name, tensor.datatype, tensor.dims))
        else:
            parts.append(bytes_field(onnx_file.INITIALIZERS, _elsewhere(tensor, weights)))
            largest = max(largest, tensor.size_bytes)
    parts += [bytes_field(onnx_file.INPUTS, _encoded(value)) for value in (*inputs, *extra)]
    known = {value.name: value for value in file.outputs}
    for name in outputs:
        value = known.get(name)
        text = _encoded(value) if value else bytes_field(1, name.encode())
        parts.append(bytes_field(onnx_file.OUTPUTS, text))
    graph = bytes_field(onnx_file.GRAPH, file.graph_fields, *parts)
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
