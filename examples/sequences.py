"""Two models that answer step by step: an encoder, and a decoder with an explicit state.

Seeded weights never learn to end, so the first number of an input is the number of steps of its
answer; all else in the answer depends on the whole input. A decoder's output ``next.X`` is the
input ``X`` of its next step (docs/handler.md).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["LENGTH_MAX", "STEPS_MAX", "VOCABULARY", "recurrent", "transformer"]

LENGTH_MAX = 16  # words of an input
STEPS_MAX = 40  # words of an answer
VOCABULARY = 4000
_WIDTH = 512
_OPSET = 17
_INT, _FLOAT, _BOOL = TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL


class _Graph:
    """Collects the nodes and weights of a model; methods return the name of what they add."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []

    def op(self, kind: str, *inputs: str, to: str = "", **attributes: object) -> str:
        """Add a node with one output."""
        name = to or f"{kind.lower()}{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def floats(self, name: str) -> str:
        """Add a conversion to floats."""
        out = f"cast{len(self._nodes)}"
        self._nodes.append(helper.make_node("Cast", [name], [out], to=_FLOAT))
        return out

    def const(self, value: object, dtype: type = np.int64) -> str:
        """Add a constant."""
        name = f"c{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def weight(self, *shape: int) -> str:
        """Add seeded weights with which activations keep their scale."""
        values = self._rng.standard_normal(shape, np.float32) / np.float32(math.sqrt(shape[0]))
        return self.array(values)

    def table(self, rows: int, width: int) -> str:
        """Add a table with a seeded vector for each word or position."""
        return self.array(self._rng.standard_normal((rows, width), np.float32))

    def array(self, values: NDArray[np.float32]) -> str:
        """Add the given weights."""
        name = f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def linear(self, rows: str, width_in: int, width_out: int) -> str:
        """Add a product of rows and a seeded matrix."""
        return self.op("MatMul", rows, self.weight(width_in, width_out))

    def model(
        self, inputs: dict[str, tuple[int, list[int]]], outputs: dict[str, tuple[int, list[int]]]
    ) -> onnx.ModelProto:
        """Return the model; its inputs and outputs have the batch as their first axis."""
        ends = [
            [
                helper.make_tensor_value_info(name, kind, ["batch", *dims])
                for name, (kind, dims) in each.items()
            ]
            for each in (inputs, outputs)
        ]
        graph = helper.make_graph(self._nodes, "sequence", ends[0], ends[1], self._weights)
        opset = [helper.make_opsetid("", _OPSET)]
        return helper.make_model(graph, opset_imports=opset, ir_version=8)


def recurrent() -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Return an encoder and a decoder of gated recurrent units; a decoder step is one cell."""
    encoder = _Graph(5)
    words = encoder.op("Gather", encoder.table(VOCABULARY, _WIDTH), "tokens")
    hidden = encoder.array(np.zeros((1, _WIDTH)))
    gates = _gates(encoder)
    for at in range(LENGTH_MAX):
        word = encoder.op("Gather", words, encoder.const(at), axis=1)
        hidden = _cell(encoder, gates, word, hidden, "hidden" if at == LENGTH_MAX - 1 else "")
    _start(encoder)
    state = {"hidden": (_FLOAT, [_WIDTH]), "token": (_INT, []), "left": (_INT, [])}
    decoder = _Graph(6)
    word = decoder.op("Gather", decoder.table(VOCABULARY, _WIDTH), "token")
    _cell(decoder, _gates(decoder), word, "hidden", "next.hidden")
    _choose(decoder, "next.hidden")
    made = {"next.hidden": state["hidden"], **_CHOSEN}
    return encoder.model({"tokens": (_INT, [LENGTH_MAX])}, state), decoder.model(state, made)


def transformer(width: int = 256, layers: int = 2) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Return an encoder and a decoder with attention over the input and all earlier words.

    The state has the keys and values of earlier words.
    """
    encoder = _Graph(7)
    rows = encoder.op("Gather", encoder.table(VOCABULARY, width), "tokens")
    rows = encoder.op("Add", rows, encoder.table(LENGTH_MAX, width))
    for layer in range(layers):
        rows = _attend(encoder, rows, rows, rows, width)
        rows = _feed_forward(encoder, rows, width, "memory" if layer == layers - 1 else "")
    _start(encoder)
    first = encoder.op("Mul", "left", encoder.const(0))
    encoder.op("Identity", first, to="place")
    past = encoder.op("Unsqueeze", encoder.floats(first), encoder.const([1, 2]))
    caches = [f"{kind}{layer}" for layer in range(layers) for kind in ("keys", "values")]
    for name in caches:
        encoder.op("Expand", past, encoder.const([1, STEPS_MAX, width]), to=name)
    state: dict[str, tuple[int, list[int]]] = {
        "memory": (_FLOAT, [LENGTH_MAX, width]),
        "token": (_INT, []),
        "left": (_INT, []),
        "place": (_INT, []),
        **dict.fromkeys(caches, (_FLOAT, [STEPS_MAX, width])),
    }
    return encoder.model({"tokens": (_INT, [LENGTH_MAX])}, state), _step(state, width, layers)


def _step(state: dict[str, tuple[int, list[int]]], width: int, layers: int) -> onnx.ModelProto:
    """Return the decoder: a step writes keys and values at its position, and reads all up to it."""
    graph = _Graph(8)
    places = graph.const(np.arange(STEPS_MAX))
    place = graph.op("Unsqueeze", "place", graph.const([1]))
    here = graph.floats(graph.op("Equal", places, place))
    here = graph.op("Unsqueeze", here, graph.const([2]))
    ahead = graph.floats(graph.op("Greater", places, place))
    hidden = graph.op(
        "Mul", graph.op("Unsqueeze", ahead, graph.const([1])), graph.const(-1e9, np.float32)
    )
    row = graph.op("Gather", graph.table(VOCABULARY, width), "token")
    row = graph.op("Add", row, graph.op("Gather", graph.table(STEPS_MAX, width), "place"))
    row = graph.op("Unsqueeze", row, graph.const([1]))
    for layer in range(layers):
        for name in (f"keys{layer}", f"values{layer}"):
            entry = graph.op("Mul", here, graph.linear(row, width, width))
            graph.op("Add", name, entry, to=f"next.{name}")
        row = _attend(graph, row, f"next.keys{layer}", f"next.values{layer}", width, hidden)
        row = _attend(graph, row, "memory", "memory", width)
        row = _feed_forward(graph, row, width)
    graph.op("Add", "place", graph.const(1), to="next.place")
    _choose(graph, graph.op("Squeeze", row, graph.const([1])), width)
    unchanged = ("memory", "token", "left")
    made = {f"next.{name}": kind for name, kind in state.items() if name not in unchanged}
    return graph.model(state, made | _CHOSEN)


_CHOSEN: dict[str, tuple[int, list[int]]] = {
    "next.token": (_INT, []),
    "next.left": (_INT, []),
    "done": (_BOOL, []),
    "word": (_INT, []),
    "score": (_FLOAT, []),
}


def _start(encoder: _Graph) -> None:
    """Add the initial state: the input's first number is the number of steps and the first word."""
    first = encoder.op("Gather", "tokens", encoder.const(0), axis=1)
    encoder.op("Identity", first, to="left")
    encoder.op("Identity", first, to="token")


def _choose(decoder: _Graph, rows: str, width: int = _WIDTH) -> None:
    """Add a step's outputs: the word with the highest score, the score, and whether it is last."""
    scores = decoder.linear(rows, width, VOCABULARY)
    decoder.op("ArgMax", scores, to="word", axis=1, keepdims=0)
    decoder.op("Identity", "word", to="next.token")
    decoder.op("ReduceMax", scores, to="score", axes=[1], keepdims=0)
    decoder.op("Sub", "left", decoder.const(1), to="next.left")
    decoder.op("LessOrEqual", "left", decoder.const(1), to="done")


def _gates(graph: _Graph) -> tuple[str, str]:
    return graph.weight(_WIDTH, 3 * _WIDTH), graph.weight(_WIDTH, 3 * _WIDTH)


def _cell(graph: _Graph, gates: tuple[str, str], word: str, hidden: str, to: str = "") -> str:
    """Add a gated recurrent unit (Cho et al. 2014), whose three gates share each product."""
    parts = []
    for rows, matrix in zip((word, hidden), gates, strict=True):
        product = graph.op("MatMul", rows, matrix)
        parts.append(
            [
                graph.op(
                    "Slice",
                    product,
                    graph.const([gate * _WIDTH]),
                    graph.const([(gate + 1) * _WIDTH]),
                    graph.const([1]),
                )
                for gate in range(3)
            ]
        )
    update, reset = (
        graph.op("Sigmoid", graph.op("Add", parts[0][gate], parts[1][gate])) for gate in (0, 1)
    )
    fresh = graph.op("Add", parts[0][2], graph.op("Mul", reset, parts[1][2]))
    fresh = graph.op("Tanh", fresh)
    kept = graph.op("Mul", update, graph.op("Sub", hidden, fresh))
    return graph.op("Add", fresh, kept, to=to)


def _attend(graph: _Graph, rows: str, keys: str, values: str, width: int, hidden: str = "") -> str:
    """Add one head of attention (Vaswani et al. 2017) with its residual and norm."""
    asked = graph.linear(rows, width, width)
    scores = graph.op("MatMul", asked, graph.op("Transpose", keys, perm=[0, 2, 1]))
    scores = graph.op("Mul", scores, graph.const(width**-0.5, np.float32))
    if hidden:
        scores = graph.op("Add", scores, hidden)
    found = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), values)
    return _norm(graph, graph.op("Add", rows, graph.linear(found, width, width)), width)


def _feed_forward(graph: _Graph, rows: str, width: int, to: str = "") -> str:
    inner = graph.op("Relu", graph.linear(rows, width, 4 * width))
    return _norm(graph, graph.op("Add", rows, graph.linear(inner, 4 * width, width)), width, to)


def _norm(graph: _Graph, rows: str, width: int, to: str = "") -> str:
    return graph.op("LayerNormalization", rows, graph.array(np.ones(width)), axis=-1, to=to)
