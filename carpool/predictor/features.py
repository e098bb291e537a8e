"""Features of an operator's time: its class and a few sizes, each of them linear in the batch.

Classes follow the runtime's kernels rather than ONNX's names: a pointwise and a depthwise
convolution share only a name. `roofline_terms` turns sizes into seconds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from carpool.onnx_graph.operator_graph import TensorShape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from carpool.onnx_graph.operator_graph import Case, Shape

__all__ = ["WHOLE", "Sized", "is_like_others", "sized"]

WHOLE = " whole"  # suffix of classes of integer products

_PIXEL_AXES = 4  # batch, channels, height, width
_CONVOLVED_AXES = (_PIXEL_AXES - 1, _PIXEL_AXES)
_BLOCK = 16  # channels that a blocked convolution takes at once
_DENSE = frozenset({"Gemm", "com.microsoft.FusedGemm", "MatMul", "com.microsoft.FusedMatMul"})
_CONVOLUTIONS = frozenset({"Conv", "com.microsoft.FusedConv", "nchwc.Conv"})
_VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Shape", "Dropout"})
_RECURRENT = {"LSTM": 4, "GRU": 3, "RNN": 1}
_POOLS = frozenset(
    {
        *("MaxPool", "AveragePool", "nchwc.MaxPool", "nchwc.AveragePool", "LRN"),
        "com.microsoft.QLinearAveragePool",
    }
)
_ROWS = frozenset(
    {
        *("Softmax", "LogSoftmax", "LayerNormalization", "com.microsoft.SkipLayerNormalization"),
        *("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "GlobalAveragePool"),
        *("GlobalMaxPool", "nchwc.GlobalAveragePool", "nchwc.GlobalMaxPool", "ArgMax", "TopK"),
        *("InstanceNormalization", "SimplifiedLayerNormalization"),
        *("com.microsoft.QLinearGlobalAveragePool", "com.microsoft.QLinearReduceMean"),
    }
)
_ELEMENTWISE = frozenset(
    {
        *("Abs", "Add", "And", "Ceil", "Clip", "Cos", "DequantizeLinear", "Div", "Elu", "Equal"),
        *("Erf", "Exp", "FastGelu", "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid"),
        *("HardSwish", "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mod"),
        *("Mul", "Neg", "Not", "Or", "PRelu", "Pow", "QuantizeLinear", "QuickGelu", "Reciprocal"),
        *("Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Sqrt", "Sub", "Sum"),
        *("Swish", "Tanh", "Where", "Xor", "BatchNormalization", "BiasGelu", "BiasAdd"),
        *("QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "Size", "Range"),
        *("ConstantOfShape", "DynamicQuantizeLinear", "ThresholdedRelu", "HardTanh", "Mish"),
    }
)
_NO_PREFIX = ("nchwc.", "com.microsoft.")
# Integer products and convolutions: the position of the weights among their inputs.
_WHOLE_PRODUCTS = {"MatMulInteger": 1, "DynamicQuantizeMatMul": 1, "MatMulIntegerToFloat": 1}
_WHOLE_PRODUCTS |= {"QLinearMatMul": 3, "QGemm": 3}
_WHOLE_CONVOLUTIONS = {"ConvInteger": 1, "QLinearConv": 3}
_NOTHING = TensorShape("", ())


class Sized(NamedTuple):
    """An operator's class, and the sizes that its family's terms are computed from.

    Attributes:
        family: The family whose terms apply.
        operator_class: The class; operators of one class share coefficients.
        sizes: The sizes, in the family's order.
    """

    family: str
    operator_class: str
    sizes: tuple[float, ...]


def sized(case: Case) -> Sized:
    """Return the class and sizes of an operator; every operator has them."""
    if case.op_type in _CONVOLUTIONS and len(case.inputs[0].shape) in _CONVOLVED_AXES:
        return _blocked(case) if case.op_type.startswith("nchwc.") else _unblocked(case)
    name = _name(case.op_type)
    if name in _WHOLE_CONVOLUTIONS and len(case.inputs[0].shape) >= _PIXEL_AXES - 1:
        signed = " signed" * (case.inputs[0].datatype == "i8")
        return _products_of(case, case.inputs[_WHOLE_CONVOLUTIONS[name]], f"conv{signed}{WHOLE}")
    if name == "ConvTranspose":
        return _transposed(case)
    if name in _WHOLE_PRODUCTS:
        return _multiplied(case, case.inputs[_WHOLE_PRODUCTS[name]], f"dense{WHOLE}")
    for op_types, size in _SIZED:
        if case.op_type in op_types:
            return size(case)
    return _elementwise(case)


def is_like_others(case: Case) -> bool:
    """Return whether a law of its family predicts an operator that was never measured."""
    family = sized(case).family
    return family != "elementwise" or _name(case.op_type) in _ELEMENTWISE


def _name(op_type: str) -> str:
    """Return an operator's name without the runtime's own domains."""
    return op_type.removeprefix(_NO_PREFIX[0]).removeprefix(_NO_PREFIX[1])


def _blocked(case: Case) -> Sized:
    """Return the class and sizes of an NCHWc convolution.

    Sizes: (images, groups, in, out, height, width, taps, stride, edge, bytes).
    """
    image, weights, result = case.inputs[0], case.inputs[1], case.outputs[0]
    groups = case.given.get("group", 1)
    count, _, height, width = result.shape
    out, inside, down, across = weights.shape
    pads = case.given.get("pads") or [0] * 4
    stride = (case.given.get("strides") or [1, 1])[-1]
    edge = min(width, math.ceil(pads[1] / stride) + math.ceil(pads[-1] / stride))
    if groups > 1 and inside == 1:
        family = "depthwise"
    elif image.shape[1] % _BLOCK:
        family = "first"
    else:
        family = "pointwise" if down == across == 1 else "direct"
    others = case.inputs[3:4]
    moved = result.size_bytes + sum(tensor.size_bytes for tensor in others)
    sizes = (count, groups, inside, out // groups, height, width, down * across, stride, edge)
    ends = (image.size_bytes, weights.size_bytes, moved)
    return Sized(family, f"conv {family}", tuple(map(float, (*sizes, *ends))))


def _unblocked(case: Case) -> Sized:
    """Return the class and sizes of a convolution by matrix products.

    Sizes: (calls, rows, columns, depth, unfolded, runs, bytes). Unfolding copies a row of pixels
    for each channel and tap: ``unfolded`` numbers in ``runs`` runs.

    Two cases use other kernels: with more channels than pixels, threads hardly share the work; with
    a single pixel, the weights are multiplied by a vector, so channels become columns.
    """
    image, weights, result = case.inputs[0], case.inputs[1], case.outputs[0]
    groups = case.given.get("group", 1)
    out, inside, *window = weights.shape
    taps, columns = math.prod(window), math.prod(result.shape[2:])
    calls, depth = result.shape[0] * groups, inside * taps
    unfolded = calls * depth * columns if taps > 1 else 0
    runs = unfolded / max(1, result.shape[-1])
    operator_class = "unfolded" if taps > 1 else "product"
    operator_class = "depthwise" if inside == 1 and groups > 1 else operator_class
    rows, form = out // groups, ""
    if operator_class != "depthwise" and rows > columns:
        rows, columns, form = (1, rows, " vector") if columns == 1 else (rows, columns, " tall")
    ends = (image.size_bytes, weights.size_bytes, result.size_bytes)
    sizes = (calls, rows, columns, depth, unfolded, runs, *ends)
    return Sized("unfolded", f"conv {operator_class} plain{form}", tuple(map(float, sizes)))


def _products_of(case: Case, weights: TensorShape, operator_class: str) -> Sized:
    """Return class and sizes of a convolution that is a product for any window, as `_unblocked`."""
    image, result, groups = case.inputs[0], case.outputs[0], case.given.get("group", 1)
    out, inside, *window = weights.shape
    pixels = result.shape[1:-1] if case.given.get("channels_last") else result.shape[2:]
    taps, columns = math.prod(window), math.prod(pixels)
    calls, depth = result.shape[0] * groups, inside * taps
    unfolded = calls * depth * columns if taps > 1 else 0
    runs = unfolded / max(1, result.shape[-1])
    ends = (image.size_bytes, weights.size_bytes, result.size_bytes)
    sizes = (calls, out // groups, columns, depth, unfolded, runs, *ends)
    return Sized("unfolded", operator_class, tuple(map(float, sizes)))


def _transposed(case: Case) -> Sized:
    """Return class and sizes of a transposed convolution, a product with its columns added up.

    The sizes are those of `_unblocked`.
    """
    image, weights, result = case.inputs[0], case.inputs[1], case.outputs[0]
    groups = case.given.get("group", 1)
    inside, out, *window = weights.shape
    columns, rows = math.prod(image.shape[2:]), out * math.prod(window)
    calls = image.shape[0] * groups
    unfolded = calls * rows * columns
    ends = (image.size_bytes, weights.size_bytes, result.size_bytes)
    runs = unfolded / max(1, image.shape[-1])
    sizes = (calls, rows, columns, inside // groups, unfolded, runs, *ends)
    return Sized("unfolded", "conv transposed", tuple(map(float, sizes)))


def _dense(case: Case) -> Sized:
    """Return class and sizes of a matrix product.

    Sizes: (calls, rows, columns, depth, bytes of A, B and C).
    """
    return _multiplied(case, case.inputs[1], "")


def _multiplied(case: Case, right: TensorShape, operator_class: str) -> Sized:
    left, result = case.inputs[0], case.outputs[0]
    flipped = bool(case.given.get("transB"))
    columns = result.shape[-1] if result.shape else 1
    depth = right.shape[-1] if flipped else right.shape[-2] if len(right.shape) > 1 else 1
    rows = result.elements // max(1, columns)
    calls = 1
    if not right.constant and len(right.shape) > 2:  # noqa: PLR2004  a stack of matrices
        calls = right.elements // max(1, columns * depth)
        rows //= max(1, calls)
    operator_class = operator_class or ("dense" if right.constant else "product")
    ends = (left.size_bytes, right.size_bytes, result.size_bytes)
    return Sized("dense", operator_class, tuple(map(float, (calls, rows, columns, depth, *ends))))


def _recurrent(case: Case) -> Sized:
    """Return class and sizes of a recurrent layer: (steps, rows, in, hidden, gates, directions)."""
    steps, rows, inside = case.inputs[0].shape
    directions, _, hidden = case.inputs[2].shape
    gates = _RECURRENT[case.op_type]
    sizes = (steps, rows, inside, hidden, gates, directions)
    return Sized("recurrent", case.op_type, tuple(map(float, sizes)))


def _window(case: Case) -> Sized:
    """Return class and sizes of a window over pixels: (results, taps, bytes in, bytes out)."""
    taps = math.prod(case.given.get("kernel_shape") or [case.given.get("size", 1)])
    result = case.outputs[0]
    sizes = (result.elements, taps, case.inputs[0].size_bytes, result.size_bytes)
    return Sized("window", case.op_type, tuple(map(float, sizes)))


def _rows(case: Case) -> Sized:
    """Return class and sizes of an operator on rows: (elements, rows, bytes)."""
    first, result = case.inputs[0], case.outputs[0]
    last = first.shape[-1] if first.shape else 1
    reduced = result.elements < first.elements
    rows = result.elements if reduced else first.elements / max(1, last)
    return Sized("rows", case.op_type, (float(first.elements), float(rows), _moved_bytes(case)))


def _copy(case: Case) -> Sized:
    """Return class and sizes of an operator that copies: (elements, contiguous runs, bytes)."""
    result = case.outputs[0]
    run = _run_length(case, result.shape)
    return Sized(
        "copy", case.op_type, (float(result.elements), result.elements / run, _moved_bytes(case))
    )


def _run_length(case: Case, shape: Shape) -> float:
    if case.op_type == "Transpose":
        order = case.given.get("perm") or list(range(len(shape)))[::-1]
        kept = 1
        for axis in range(len(order) - 1, -1, -1):
            if order[axis] != axis:
                break
            kept *= shape[axis]
        return float(max(1, kept))
    if case.op_type == "Concat":
        axis = case.given.get("axis", 0) % max(1, len(shape))
        return max(1.0, math.prod(shape[axis:]) / max(1, len(case.inputs)))
    return float(max(1, shape[-1] if shape else 1))


def _view(case: Case) -> Sized:
    """Return class and sizes of an operator that copies nothing: ()."""
    return Sized("view", case.op_type, ())


def _elementwise(case: Case) -> Sized:
    """Return class and sizes of an elementwise operator.

    Sizes: (elements, runs without a change of operand, bytes).
    """
    result = case.outputs[0] if case.outputs else _NOTHING
    given = [tensor for tensor in case.inputs if tensor.datatype]
    run = float(max(1, result.elements))
    for tensor in given:
        if 1 < tensor.elements < result.elements:
            run = min(run, _broadcast_run(tensor.shape, result.shape))
    sizes = (float(result.elements), result.elements / run, _moved_bytes(case))
    return Sized("elementwise", case.op_type, sizes)


def _broadcast_run(shape: Shape, result: Shape) -> float:
    """Return the length of a run of results that uses one operand element, or consecutive ones."""
    ones = shared = 1
    for at in range(1, len(result) + 1):
        size = shape[-at] if at <= len(shape) else 1
        if size != result[-at]:
            break
        shared *= size
    for at in range(1, len(result) + 1):
        size = shape[-at] if at <= len(shape) else 1
        if size != 1:
            break
        ones *= result[-at]
    return float(max(ones, shared))


def _moved_bytes(case: Case) -> float:
    return float(sum(tensor.size_bytes for tensor in (*case.inputs, *case.outputs)))


_COPIES = frozenset(
    {
        *("DepthToSpace", "SpaceToDepth", "GatherElements", "Trilu", "Reverse", "Upsample"),
        *("Transpose", "Concat", "Slice", "Split", "Gather", "Expand", "Tile", "Pad", "Cast"),
        *("nchwc.ReorderInput", "nchwc.ReorderOutput", "nchwc.Upsample", "Resize", "GatherND"),
    }
)
_SIZED: Sequence[tuple[frozenset[str], Callable[[Case], Sized]]] = (
    (_DENSE, _dense),
    (frozenset(_RECURRENT), _recurrent),
    (_POOLS, _window),
    (_ROWS, _rows),
    (_COPIES, _copy),
    (_VIEWS, _view),
)
