"""One node of an optimised model as a separate model, and its inputs.

Large constants get random numbers, since times do not depend on them. Small ones keep their values,
as do inputs that follow from shapes alone (the target of a Reshape), which the runtime computes
from the part of the graph that contains nothing else. Nothing is timed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import GraphProto, ModelProto, helper, numpy_helper

from carpool.onnx_graph.parts import inputs_of, is_inline, replaced, subgraphs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from onnx import NodeProto, TensorProto

    from carpool.onnx_graph.operator_graph import Case, Operator, TensorShape

    Array = NDArray[Any]
    Arrays = dict[str, Array]
    Run = Callable[[ModelProto], Arrays]

__all__ = ["feeds", "known_from_shapes", "random_array", "results", "shape_values", "single_node"]

_DTYPES = {"f32": "float32", "f64": "float64", "f16": "float16", "bool": "bool"}
_DTYPES |= {
    f"{short}{bits}": f"{long}{bits}"
    for short, long in (("i", "int"), ("u", "uint"))
    for bits in (8, 16, 32, 64)
}
_CONVOLUTIONS, _SUMMAND = ("Conv", "FusedConv"), 3  # the input that a fused sum adds
_BLOCK = 1 << 20  # random numbers that are repeated
_MATRIX = 2  # with as many dimensions, integers are weights, not offsets or indices


def single_node(model: ModelProto, node: NodeProto, case: Case) -> ModelProto:
    """Return a model of one node, for any sizes of its non-constant inputs.

    Args:
        model: An optimised model.
        node: One of its nodes.
        case: The node at any batch size.
    """
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    names = inputs_of(node)
    given = dict.fromkeys(filter(None, names))
    shapes = dict(zip(names, case.inputs, strict=True))
    inputs = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(_dtype(shapes[name])),
            [None] * len(shapes[name].shape),
        )
        for name in given
        if name not in constants
    ]
    graph = GraphProto(
        name="one",
        node=[node],
        input=inputs,
        output=[helper.make_empty_tensor_value_info(name) for name in node.output if name],
        initializer=[_filled(constants[name]) for name in given if name in constants],
    )
    around = {field.name: value for field, value in model.ListFields() if field.name != "graph"}
    return ModelProto(**around, graph=graph)


def feeds(node: NodeProto, case: Case, values: Arrays) -> Arrays:
    """Return the inputs of a node: from ``values`` where known, else random numbers."""
    shapes = zip(inputs_of(node), case.inputs, strict=True)
    known = values | _conditions(node, case)
    return {
        name: np.array(known[name]) if name in known else random_array(_dtype(shape), shape.shape)
        for name, shape in shapes
        if name and not shape.constant
    }


def shape_values(
    model: ModelProto, operators: Sequence[Operator], batch: int, run: Run
) -> dict[str, Array]:
    """Return the values of tensors that follow from shapes alone, at a batch size.

    Args:
        model: An optimised model.
        operators: Its nodes, in their order.
        batch: The batch size.
        run: Runs a model without inputs.
    """
    known = known_from_shapes(model)
    nodes, shapes = [], []
    for node, operator in zip(model.graph.node, operators, strict=True):
        if node.op_type == "Shape":
            shapes.append(_shape(node, operator.at(batch)))
        elif known.issuperset(name for name in node.output if name):
            nodes.append(node)
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in shapes}
    if not nodes:
        return values
    kept = [tensor for tensor in model.graph.initializer if is_inline(tensor)]
    outputs = [helper.make_empty_tensor_value_info(o) for node in nodes for o in node.output if o]
    part = replaced(
        model, node=nodes, input=[], output=outputs, initializer=[*kept, *shapes], value_info=[]
    )
    return values | run(part)


def results(node: NodeProto, case: Case, inputs: Arrays) -> Arrays:
    """Return arrays for the outputs of a node.

    A convolution with a fused sum writes over its summand, as in a model, unless that is also its
    image. Given another array, the runtime first copies the summand there, on one thread.

    Args:
        node: The node.
        case: The node at a batch size.
        inputs: Its inputs, from `feeds`.
    """
    names = [name for name in node.output if name]
    arrays = {
        name: np.zeros(tensor.shape, _dtype(tensor))
        for name, tensor in zip(names, case.outputs, strict=True)
    }
    summands = node.input[_SUMMAND:] if node.op_type in _CONVOLUTIONS else []
    for name in summands:
        if name in inputs and name != node.input[0]:
            arrays[names[0]] = inputs[name]
    return arrays


def known_from_shapes(model: ModelProto) -> set[str]:
    """Return the names of tensors that are small constants or follow from shapes alone."""
    known = {tensor.name for tensor in model.graph.initializer if is_inline(tensor)}
    for node in model.graph.node:
        plain = node.input and not any(True for _ in subgraphs(node))
        if node.op_type == "Shape" or (plain and known.issuperset(filter(None, node.input))):
            known.update(filter(None, node.output))
    return known


def random_array(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Return normally distributed numbers; zeros and ones if the type is an integer."""
    rng, count = np.random.default_rng(1), min(_BLOCK, int(np.prod(shape)))
    if dtype == np.object_:
        return np.full(shape, "", dtype)
    if np.issubdtype(dtype, np.floating):
        block = rng.standard_normal(count, np.float32).astype(dtype)
    else:
        block = rng.integers(0, 2, count).astype(dtype)
    return np.resize(block, shape) if count else np.zeros(shape, dtype)


def _conditions(node: NodeProto, case: Case) -> Arrays:
    """Return the conditions that make an If take the case's branch, and a Loop continue."""
    if node.op_type == "If":
        return {node.input[0]: np.array(case.given["taken"] == "then_branch")}
    if node.op_type == "Loop" and node.input[1]:
        return {node.input[1]: np.array(True)}  # noqa: FBT003  a condition
    return {}


def _shape(node: NodeProto, case: Case) -> TensorProto:
    given = case.given
    sizes = case.inputs[0].shape[given.get("start", 0) : given.get("end")]
    return numpy_helper.from_array(np.array(sizes, np.int64), node.output[0])


def _filled(tensor: TensorProto) -> TensorProto:
    """Return the constant with its own values, or random ones if it is large.

    Weights are as small as trained ones, because the runtime's recurrent layers take half as long
    again if their gates saturate.
    """
    if is_inline(tensor):
        return tensor
    dtype, shape = helper.tensor_dtype_to_np_dtype(tensor.data_type), tuple(tensor.dims)
    whole = not np.issubdtype(dtype, np.floating)
    values = random_array(dtype, shape)
    if whole and len(shape) < _MATRIX:
        values = np.zeros(shape, dtype)
    elif not whole and len(shape) < _MATRIX:
        values = np.abs(values) + np.asarray(0.1, dtype)  # scales and variances are above 0
    elif not whole:
        values = values / np.asarray(max(1, *shape) ** 0.5, dtype)
    return numpy_helper.from_array(values, tensor.name)


def _dtype(tensor: TensorShape) -> np.dtype[Any]:
    return np.dtype(_DTYPES.get(tensor.datatype, "object"))
