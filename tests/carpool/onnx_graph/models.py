"""A small model, as the onnx package writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    import numpy as np

__all__ = ["model"]


def model(weight: np.ndarray, attributes: dict[str, Any] | None = None) -> onnx.ModelProto:
    """Return a model that multiplies by ``weight``, made with the onnx package."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="first", **(attributes or {}))
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", weight.shape[0]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", weight.shape[1]])],
        [numpy_helper.from_array(weight, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=3)
