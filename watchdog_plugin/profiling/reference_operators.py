"""The operators that a calibration times: one or two of each class, side by side in two models.

The weights of the first model fit into the caches together; those of the second do not, so that its
operators are memory-bound.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from onnx import helper, numpy_helper

from carpool.onnx_graph.model_file import BATCH

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

__all__ = ["LARGE", "SMALL", "Reference", "reference_model"]

_OPSET, _IR_VERSION = 17, 8
_MICROSOFT = "com.microsoft"
_TYPES = {"f32": np.float32, "u8": np.uint8, "i8": np.int8, "i64": np.int64, "bool": np.bool_}
_SCALE = 0.5  # value of scales of integers, and of other constants without a given value


class Reference(NamedTuple):
    """An operator to be timed.

    Attributes:
        op_type: ONNX operator type; the runtime may replace it by another one.
        given: Its inputs, such as ``f32[b,64]``, where ``b`` is the batch; ``=`` marks constants,
            whose values may follow. Empty for an omitted input.
        attributes: ONNX attributes.
        outputs: Number of outputs.
        turned: Whether the first two dimensions of the first input are swapped.
        domain: Domain of the operator type.
    """

    op_type: str
    given: Sequence[str]
    attributes: Mapping[str, Any] = MappingProxyType({})
    outputs: int = 1
    turned: bool = False
    domain: str = ""


_IMAGE, _ROWS, _FLAT = "f32[b,64,28,28]", "f32[b,64,256]", "f32[b,32,512]"
_AROUND = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
_HALF = {"kernel_shape": [2, 2], "strides": [2, 2]}
_Q = ("f32[]=", "u8[]=")
_SIGNED = ("f32[]=", "i8[]=")
_Q_BOTH = ("u8[b,64,24,24]", *_Q, "u8[b,64,24,24]", *_Q, *_Q)

SMALL = (
    Reference("Conv", [_IMAGE, "f32[64,64,3,3]=", "f32[64]="], _AROUND),
    Reference("Conv", ["f32[b,128,14,14]", "f32[96,128,3,3]="], _AROUND),
    Reference("Conv", ["f32[b,128,28,28]", "f32[128,128,1,1]="]),
    Reference("Conv", ["f32[b,32,48,48]", "f32[192,32,1,1]="]),
    Reference("Conv", ["f32[b,128,28,28]", "f32[128,1,3,3]="], _AROUND | {"group": 128}),
    Reference("Conv", ["f32[b,3,96,96]", "f32[32,3,3,3]="], _AROUND | {"strides": [2, 2]}),
    Reference("Conv", ["f32[b,64,256]", "f32[128,64,3]="], {"pads": [1, 1]}),
    Reference("Conv", ["f32[b,64,80]", "f32[128,64,3]="], {"pads": [1, 1]}),
    Reference("Conv", ["f32[b,72,14,14]", "f32[72,18,1,1]="], {"group": 4}),
    Reference("Conv", ["f32[b,256,1,1]", "f32[64,256,1,1]="]),
    Reference("ConvTranspose", ["f32[b,64,16,16]", "f32[64,32,2,2]="], _HALF),
    Reference("MatMul", [_ROWS, "f32[256,256]="]),
    Reference("MatMul", ["f32[b,48,192]", "f32[192,768]="]),
    Reference("Gemm", ["f32[b,512]", "f32[512,512]=", "f32[512]="]),
    Reference("MatMul", ["f32[b,4,64,64]", "f32[b,4,64,64]"]),
    Reference("MatMulInteger", ["u8[b,64,256]", "i8[256,256]="]),
    Reference(
        "QLinearConv",
        ["u8[b,64,28,28]", *_Q, "i8[64,64,3,3]=", "f32[]=", "i8[]=", *_Q],
        _AROUND,
    ),
    Reference(
        "QLinearConv",
        ["i8[b,64,28,28]", *_SIGNED, "i8[64,64,3,3]=", *_SIGNED, *_SIGNED],
        _AROUND,
    ),
    Reference(
        "LSTM",
        ["f32[b,24,128]", "f32[1,384,128]=", "f32[1,384,96]="],
        {"hidden_size": 96},
        turned=True,
    ),
    Reference(
        "GRU",
        ["f32[b,24,128]", "f32[1,288,128]=", "f32[1,288,96]="],
        {"hidden_size": 96},
        turned=True,
    ),
    Reference("QLinearAdd", _Q_BOTH, domain=_MICROSOFT),
    Reference("QLinearGlobalAveragePool", ["u8[b,64,24,24]", *_Q, *_Q], domain=_MICROSOFT),
    Reference("MaxPool", [_IMAGE], _HALF),
    Reference("AveragePool", [_IMAGE], _HALF),
    Reference("GlobalAveragePool", [_IMAGE]),
    Reference("Softmax", ["f32[b,4,64,64]"], {"axis": -1}),
    Reference("LayerNormalization", [_ROWS, "f32[256]=", "f32[256]="]),
    Reference("ReduceMean", [_ROWS], {"axes": [-1]}),
    *(Reference(op_type, [_FLAT, _FLAT]) for op_type in ("Add", "Mul", "Sub", "Div")),
    *(Reference(op_type, [_FLAT]) for op_type in ("Relu", "Sigmoid", "Tanh", "Erf", "Exp", "Sqrt")),
    *(Reference(op_type, [_FLAT]) for op_type in ("HardSigmoid", "LeakyRelu", "Neg", "HardSwish")),
    Reference("Gelu", [_FLAT], domain=_MICROSOFT),
    Reference("QuickGelu", [_FLAT], domain=_MICROSOFT),
    Reference("FastGelu", [_FLAT, "f32[512]="], domain=_MICROSOFT),
    Reference(
        "SkipLayerNormalization",
        [_ROWS, _ROWS, "f32[256]=", "f32[256]="],
        domain=_MICROSOFT,
    ),
    Reference("Pow", [_FLAT, "f32[]=2"]),
    Reference("Clip", [_FLAT, "f32[]="]),
    Reference(
        "PRelu", ["f32[b,32,64,64]", "f32[32,1,1]="]
    ),  # more numbers than the processor learns
    Reference("Where", ["bool[b,32,512]", _FLAT, _FLAT]),
    Reference("Transpose", [_ROWS], {"perm": [0, 2, 1]}),
    Reference("Concat", [_FLAT, _FLAT], {"axis": 1}),
    Reference("Gather", ["f32[2048,256]=", "i64[b,64]"]),
    Reference("Split", [_FLAT], {"axis": 1}, outputs=2),
    Reference("Slice", [_ROWS, "i64[1]=1", "i64[1]=63", "i64[1]=1"]),
    Reference("DepthToSpace", ["f32[b,36,24,24]"], {"blocksize": 3}),
    Reference("Resize", ["f32[b,16,24,24]", "", "f32[4]=1 1 2 2"], {"mode": "nearest"}),
    Reference("Resize", ["f32[b,8,24,24]", "", "f32[4]=1 1 2 2"], {"mode": "linear"}),
    Reference("Cast", ["i64[b,32,64]"], {"to": 1}),
    Reference("DynamicQuantizeLinear", [_ROWS], outputs=3),
    Reference("QuantizeLinear", [_ROWS, *_Q]),
    Reference("DequantizeLinear", ["u8[b,64,256]", *_Q]),
)
LARGE = (
    Reference("MatMul", ["f32[b,4096]", "f32[4096,4096]="]),
    Reference("Add", ["f32[b,4194304]", "f32[b,4194304]"]),
    Reference("Relu", ["f32[b,8388608]"]),
)


def reference_model(references: Sequence[Reference]) -> ModelProto:
    """Return a model of operators side by side, each with its own inputs and outputs."""
    inputs: list[ValueInfoProto] = []
    nodes: list[NodeProto] = []
    constants: list[TensorProto] = []
    for number, reference in enumerate(references):
        names = [f"r{number}_{at}" * bool(text) for at, text in enumerate(reference.given)]
        for name, text in zip(names, reference.given, strict=True):
            if "=" in text:
                constants.append(_constant(name, text))
            elif text:
                inputs.append(_input(name, text))
        nodes += _nodes(number, reference, names)
    made = {name for node in nodes for name in node.input}
    outputs = [
        helper.make_empty_tensor_value_info(name)
        for node in nodes
        for name in node.output
        if name and name not in made
    ]
    graph = helper.make_graph(nodes, "references", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)


def _nodes(number: int, reference: Reference, names: Sequence[str]) -> Iterator[NodeProto]:
    first, *others = names
    if reference.turned:
        turned = f"r{number}_turned"
        yield helper.make_node("Transpose", [first], [turned], turned, perm=[1, 0, 2])
        others = [turned, *others]
    else:
        others = [first, *others]
    results = [f"r{number}_out{at}" for at in range(reference.outputs)]
    op_type, domain, given = reference.op_type, reference.domain, reference.attributes
    yield helper.make_node(op_type, others, results, f"r{number}", domain=domain, **given)


def _shape(text: str) -> list[str]:
    return [size for size in text[text.index("[") + 1 : text.index("]")].split(",") if size]


def _input(name: str, text: str) -> ValueInfoProto:
    datatype = helper.np_dtype_to_tensor_dtype(np.dtype(_TYPES[text.partition("[")[0]]))
    sizes = [BATCH if size == "b" else int(size) for size in _shape(text)]
    return helper.make_tensor_value_info(name, datatype, sizes)


def _constant(name: str, text: str) -> TensorProto:
    """Return a constant; without given values, floats are 0.5 and integers 0."""
    dtype, shape = np.dtype(_TYPES[text.partition("[")[0]]), tuple(map(int, _shape(text)))
    given = text.partition("=")[2].split()
    values = [float(value) for value in given] or _SCALE * np.issubdtype(dtype, np.floating)
    return numpy_helper.from_array(np.resize(np.array(values, dtype), shape), name)
