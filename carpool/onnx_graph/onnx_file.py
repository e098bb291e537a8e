"""What an ONNX file consists of: nodes, constants, inputs, outputs, and what stands around them.

Parts keep the bytes that they were read from (`onnx_reader`), so that they can be written again as
they were (`onnx_writer`). Knows no runtime.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "DATATYPES",
    "GRAPH",
    "INITIALIZERS",
    "INPUTS",
    "IR_VERSION",
    "NODES",
    "OPSETS",
    "OUTPUTS",
    "VALUES",
    "Attribute",
    "Dim",
    "OnnxFile",
    "OnnxNode",
    "Tensor",
    "Value",
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

# ONNX's numbers of fields: of a model, and of its graph.
IR_VERSION, GRAPH, OPSETS = 1, 7, 8
NODES, INITIALIZERS, INPUTS, OUTPUTS, VALUES = 1, 5, 11, 12, 13


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
