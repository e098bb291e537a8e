"""A small untrained classifier and a validation set for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["CLASSES", "INPUTS", "classifier", "validation"]

INPUTS, CLASSES = 16, 5


def classifier(path: Path, *, reshaped: bool = False) -> Any:
    """Write a classifier of two layers to ``path`` and return it as a function.

    With ``reshaped``, the model takes a single row and fails with more.
    """
    onnx = pytest.importorskip("onnx")
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    draw = np.random.default_rng(3)
    first = draw.normal(size=(INPUTS, 32)).astype(np.float32)
    second = draw.normal(size=(32, CLASSES)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x" if not reshaped else "row", "first"], ["hidden"]),
        helper.make_node("Relu", ["hidden"], ["positive"]),
        helper.make_node("MatMul", ["positive", "second"], ["y"]),
    ]
    held = [("first", first), ("second", second)]
    if reshaped:
        nodes.insert(0, helper.make_node("Reshape", ["x", "shape"], ["row"]))
        held.append(("shape", np.array([1, INPUTS], np.int64)))
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", floats, ["n", INPUTS])],
        [helper.make_tensor_value_info("y", floats, ["n", CLASSES])],
        [onnx.numpy_helper.from_array(array, name) for name, array in held],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)
    return lambda x: np.maximum(x @ first, 0) @ second


def validation(path: Path, answer: Any, wrong: int = 10, rows: int = 100) -> None:
    """Write rows labelled with the classifier's own answers, except for ``wrong`` of them."""
    x = np.random.default_rng(5).normal(size=(rows, INPUTS)).astype(np.float32)
    labels = answer(x).argmax(axis=1)
    labels[:wrong] = (labels[:wrong] + 1) % CLASSES
    np.savez(path, x=x, labels=labels)
