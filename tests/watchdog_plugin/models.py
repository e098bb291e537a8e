"""Small ONNX models, written to the path that a test gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = [
    "adder",
    "counter",
    "deep",
    "doubler",
    "lookup",
    "lstm_stack",
    "mlp",
    "row_sum",
    "save",
    "split",
    "tagger",
    "texts",
]

Dims = list[int | str]


def save(
    path: Path,
    nodes: Sequence[Any],
    inputs: dict[str, tuple[int, Dims]],
    outputs: dict[str, tuple[int, Dims]],
    constants: dict[str, np.ndarray[Any, Any]] | None = None,
) -> Path:
    """Write a model with ``nodes`` to ``path`` and return the path."""
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, kind, dims) for name, (kind, dims) in inputs.items()],
        [helper.make_tensor_value_info(name, kind, dims) for name, (kind, dims) in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))
    return path


def mlp(path: Path, batch: int | str = "batch", size: int = 4, hidden: int = 8) -> Path:
    """Two layers: ``x`` FP32 [batch, size] -> ``y`` FP32 [batch, 3]."""
    random = np.random.default_rng(7)
    weights = {
        "w1": random.standard_normal((size, hidden)).astype(np.float32),
        "w2": random.standard_normal((hidden, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "w2"], ["y"]),
    ]
    return save(
        path,
        nodes,
        {"x": (TensorProto.FLOAT, [batch, size])},
        {"y": (TensorProto.FLOAT, [batch, 3])},
        weights,
    )


def deep(path: Path, layers: int = 12, width: int = 16) -> Path:
    """Layers with residuals: ``x`` FP32 [batch, width] -> ``y`` of the same shape."""
    random = np.random.default_rng(9)
    weights, nodes, last = {}, [], "x"
    for layer in range(layers):
        weights[f"w{layer}"] = random.standard_normal((width, width)).astype(np.float32) / 4
        out = "y" if layer == layers - 1 else f"r{layer}"
        nodes += [
            helper.make_node("MatMul", [last, f"w{layer}"], [f"m{layer}"]),
            helper.make_node("Tanh", [f"m{layer}"], [f"t{layer}"]),
            helper.make_node("Add", [last, f"t{layer}"], [out]),
        ]
        last = out
    ends: tuple[int, Dims] = (TensorProto.FLOAT, ["batch", width])
    return save(path, nodes, {"x": ends}, {"y": ends}, weights)


def lstm_stack(path: Path, layers: int = 2, width: int = 8) -> Path:
    """Stacked LSTM layers: ``x`` FP32 [batch, steps, width] -> ``y`` of the same shape."""
    random = np.random.default_rng(11)
    weights = {"dirs": np.array([1])}
    nodes = [helper.make_node("Transpose", ["x"], ["h0"], perm=[1, 0, 2])]
    for layer in range(layers):
        for name in "wr":
            values = random.standard_normal((1, 4 * width, width)).astype(np.float32)
            weights[f"{name}{layer}"] = values / np.float32(width**0.5)
        ends = [f"h{layer}", f"w{layer}", f"r{layer}"], [f"s{layer}"]
        nodes += [
            helper.make_node("LSTM", *ends, hidden_size=width),
            helper.make_node("Squeeze", [f"s{layer}", "dirs"], [f"h{layer + 1}"]),
        ]
    nodes.append(helper.make_node("Transpose", [f"h{layers}"], ["y"], perm=[1, 0, 2]))
    ends_: tuple[int, Dims] = (TensorProto.FLOAT, ["batch", "steps", width])
    return save(path, nodes, {"x": ends_}, {"y": ends_}, weights)


def doubler(path: Path) -> Path:
    """``x`` INT64 [batch, 3] -> ``y`` INT64 [batch, 3], the input doubled."""
    return save(
        path,
        [helper.make_node("Add", ["x", "x"], ["y"])],
        {"x": (TensorProto.INT64, ["batch", 3])},
        {"y": (TensorProto.INT64, ["batch", 3])},
    )


def lookup(path: Path) -> Path:
    """``index`` INT64 [batch] -> ``value`` FP32 [batch] from a table of ten rows."""
    return save(
        path,
        [helper.make_node("Gather", ["table", "index"], ["value"])],
        {"index": (TensorProto.INT64, ["batch"])},
        {"value": (TensorProto.FLOAT, ["batch"])},
        {"table": np.arange(10, dtype=np.float32) * 10},
    )


def row_sum(path: Path, out: Dims | None = None, axis: int = 1) -> Path:
    """``x`` FP32 [batch, width] -> ``sum`` FP32 along ``axis``."""
    return save(
        path,
        [helper.make_node("ReduceSum", ["x", "axes"], ["sum"], keepdims=0)],
        {"x": (TensorProto.FLOAT, ["batch", "width"])},
        {"sum": (TensorProto.FLOAT, ["batch"] if out is None else out)},
        {"axes": np.array([axis], np.int64)},
    )


def counter(path: Path) -> Path:
    """``x`` FP32 [batch, width] -> ``same``, and ``rows`` INT64 [batch]: the rows in the run."""
    dims: Dims = ["batch", "width"]
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Shape", ["x"], ["count"], start=0, end=1),
        helper.make_node("Expand", ["count", "count"], ["rows"]),
    ]
    return save(
        path,
        nodes,
        {"x": (TensorProto.FLOAT, dims)},
        {"same": (TensorProto.FLOAT, dims), "rows": (TensorProto.INT64, ["batch"])},
    )


def adder(path: Path) -> Path:
    """``a`` and ``b`` FP32 [batch, 2] -> ``sum`` and ``difference``."""
    row: tuple[int, Dims] = (TensorProto.FLOAT, ["batch", 2])
    nodes = [
        helper.make_node("Add", ["a", "b"], ["sum"]),
        helper.make_node("Sub", ["a", "b"], ["difference"]),
    ]
    return save(path, nodes, {"a": row, "b": row}, {"sum": row, "difference": row})


def texts(path: Path) -> Path:
    """``text`` BYTES [batch] -> ``same`` BYTES [batch]."""
    return save(
        path,
        [helper.make_node("Identity", ["text"], ["same"])],
        {"text": (TensorProto.STRING, ["batch"])},
        {"same": (TensorProto.STRING, ["batch"])},
    )


def split(path: Path) -> Path:
    """``x`` FP32 [batch, 4] -> ``same``, and ``rows``: a sequence, which cannot be served."""
    rows: tuple[int, Dims] = (TensorProto.FLOAT, ["batch", 4])
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("SplitToSequence", ["x"], ["rows"], axis=0),
    ]
    model = onnx.load(save(path, nodes, {"x": rows}, {"same": rows}))
    sequence = helper.make_tensor_sequence_value_info("rows", TensorProto.FLOAT, None)
    model.graph.output.append(sequence)
    onnx.save(model, str(path))
    return path


def tagger(path: Path) -> Path:
    """``ids`` INT64 and ``mask`` FP32 [batch, length] -> ``tags`` [batch, length] and ``sum``.

    Each tag is ten times its id; ``sum`` adds up the masked tags.
    """
    ragged: Dims = ["batch", "length"]
    nodes = [
        helper.make_node("Cast", ["ids"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["numbers", "ten"], ["tags"]),
        helper.make_node("Mul", ["tags", "mask"], ["masked"]),
        helper.make_node("ReduceSum", ["masked", "axes"], ["sum"], keepdims=0),
    ]
    return save(
        path,
        nodes,
        {"ids": (TensorProto.INT64, ragged), "mask": (TensorProto.FLOAT, ragged)},
        {"tags": (TensorProto.FLOAT, ragged), "sum": (TensorProto.FLOAT, ["batch"])},
        {"ten": np.array([10], np.float32), "axes": np.array([1], np.int64)},
    )
