"""Build ONNX models layer by layer, with seeded weights and a free batch dimension."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx

__all__ = ["Layers"]

_OPSET, _IR_VERSION = 17, 8


class Layers:
    """A model to which layers are appended; the name of its latest tensor is ``last``.

    Args:
        name: Name of the model.
        shape: Shape of its input, with the batch dimension as a name.
        datatype: Data type of its input.
    """

    def __init__(
        self, name: str, shape: Sequence[int | str], datatype: int = TensorProto.FLOAT
    ) -> None:
        self.last = "input"
        self._name = name
        self._input = helper.make_tensor_value_info("input", datatype, list(shape))
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._rng = np.random.default_rng(7)

    def model(self) -> onnx.ModelProto:
        """Return the finished model."""
        output = helper.make_empty_tensor_value_info(self.last)
        output = helper.make_tensor_value_info(self.last, TensorProto.FLOAT, None)
        graph = helper.make_graph(self._nodes, self._name, [self._input], [output], self._weights)
        opsets = [helper.make_opsetid("", _OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)

    def op(self, kind: str, *others: str, **attributes: Any) -> Self:  # noqa: ANN401  as ONNX has them
        """Append any operator on the last tensor and ``others``."""
        at = len(self._nodes)
        node = helper.make_node(
            kind, [self.last, *others], [f"t{at}"], name=f"{kind}_{at}", **attributes
        )
        self._nodes.append(node)
        self.last = f"t{at}"
        return self

    def weight(self, *shape: int, fan_in: int = 0) -> str:
        """Add random weights and return their name."""
        scale = math.sqrt(2 / fan_in) if fan_in else 0.1
        values = self._rng.standard_normal(shape, np.float32) * np.float32(scale)
        return self._constant(values)

    def integers(self, *values: int) -> str:
        """Add a constant of integers and return its name."""
        return self._constant(np.array(values, np.int64))

    def floats(self, *values: float) -> str:
        """Add a constant of floats and return its name."""
        return self._constant(np.array(values, np.float32))

    def scalar(self, value: float) -> str:
        """Add a scalar constant and return its name."""
        return self._constant(np.array(value, np.float32))

    def conv(self, inside: int, outside: int, size: int, stride: int = 1, groups: int = 1) -> Self:
        """Append a convolution over pixels that keeps their number, except for the stride."""
        fan_in = inside // groups * size * size
        weights = self.weight(outside, inside // groups, size, size, fan_in=fan_in)
        return self.op(
            "Conv",
            weights,
            self.weight(outside),
            kernel_shape=[size, size],
            pads=[size // 2] * 4,
            strides=[stride, stride],
            group=groups,
        )

    def conv1d(self, inside: int, outside: int, size: int) -> Self:
        """Append a convolution over a sequence."""
        weights = self.weight(outside, inside, size, fan_in=inside * size)
        return self.op("Conv", weights, self.weight(outside), kernel_shape=[size])

    def pool(self, kind: str, size: int, stride: int) -> Self:
        """Append maximum or average pooling."""
        window: dict[str, Any] = {"kernel_shape": [size, size], "strides": [stride, stride]}
        return self.op(kind, pads=[size // 2] * 4, **window)

    def dense(self, inside: int, outside: int) -> Self:
        """Append a fully connected layer on [rows, inside]."""
        weights = self.weight(inside, outside, fan_in=inside)
        return self.op("Gemm", weights, self.weight(outside))

    def matmul(self, inside: int, outside: int) -> Self:
        """Append a fully connected layer on [..., inside]."""
        return self.op("MatMul", self.weight(inside, outside, fan_in=inside)).add(outside)

    def add(self, width: int) -> Self:
        """Append the addition of a bias."""
        return self.op("Add", self.weight(width))

    def norm(self, width: int) -> Self:
        """Append layer normalisation."""
        return self.op("LayerNormalization", self.weight(width), self.weight(width), axis=-1)

    def gelu(self) -> Self:
        """Append GELU as exporters of opset 17 write it."""
        before = self.last
        self.op("Div", self.scalar(math.sqrt(2))).op("Erf").op("Add", self.scalar(1.0))
        return self.op("Mul", before).op("Mul", self.scalar(0.5))

    def attention(self, steps: int, width: int, heads: int) -> Self:
        """Append self-attention with its residual and norm, on [batch, steps, width]."""
        start, each = self.last, width // heads
        parts = []
        for turn in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)):
            self.last = start
            self.matmul(width, width)
            parts.append(self.reshape(0, steps, heads, each).transpose(turn).last)
        self.last = parts[0]
        self.op("MatMul", parts[1]).op("Div", self.scalar(math.sqrt(each)))
        self.op("Softmax", axis=-1).op("MatMul", parts[2]).transpose((0, 2, 1, 3))
        self.reshape(0, steps, width).matmul(width, width)
        return self.op("Add", start).norm(width)

    def feed_forward(self, width: int, inner: int) -> Self:
        """Append two layers with GELU between them, with their residual and norm."""
        start = self.last
        self.matmul(width, inner).gelu().matmul(inner, width)
        return self.op("Add", start).norm(width)

    def embedding(self, words: int, width: int) -> Self:
        """Append a lookup of a vector for each integer."""
        index, self.last = self.last, self.weight(words, width)
        return self.op("Gather", index, axis=0)

    def lstm(self, inside: int, hidden: int) -> Self:
        """Append an LSTM over [steps, batch, inside]."""
        return self._recurrent("LSTM", 4, inside, hidden)

    def gru(self, inside: int, hidden: int) -> Self:
        """Append a GRU over [steps, batch, inside]."""
        return self._recurrent("GRU", 3, inside, hidden)

    def transpose(self, order: Sequence[int]) -> Self:
        """Append a reordering of the axes."""
        return self.op("Transpose", perm=list(order))

    def reshape(self, *shape: int) -> Self:
        """Append a change of shape; 0 keeps a dimension."""
        return self.op("Reshape", self.integers(*shape))

    def flatten(self) -> Self:
        """Merge all axes but the batch into one."""
        return self.op("Flatten", axis=1)

    def mean(self, axis: int) -> Self:
        """Append the mean over an axis, which is removed."""
        return self.op("ReduceMean", axes=[axis], keepdims=0)

    def concat(self, names: Sequence[str], axis: int) -> Self:
        """Concatenate several tensors."""
        self.last, *others = names
        return self.op("Concat", *others, axis=axis)

    def _recurrent(self, kind: str, gates: int, inside: int, hidden: int) -> Self:
        weights = [
            self.weight(1, gates * hidden, inside, fan_in=inside),
            self.weight(1, gates * hidden, hidden, fan_in=hidden),
            self.weight(1, 2 * gates * hidden),
        ]
        return self.op(kind, *weights, hidden_size=hidden).op("Squeeze", self.integers(1))

    def _constant(self, values: np.ndarray) -> str:
        name = f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(values, name))
        return name
