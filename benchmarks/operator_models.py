"""Models of different kinds to test the predictor with; built here, nothing is downloaded.

The convolutional ones are the architectures that the onnx package keeps for its tests, with seeded
weights and a free batch dimension.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.layers import Layers
from examples import models

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MODELS", "build"]

_LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
_IR_VERSION = 8


class Model(NamedTuple):
    """A model of the benchmark.

    Attributes:
        description: What it consists of, for the reader.
        make: Function that builds it.
    """

    description: str
    make: Callable[[], onnx.ModelProto]


def light(name: str) -> onnx.ModelProto:
    """Return an architecture of the onnx package with seeded weights, free batch, named nodes."""
    model = onnx.load(_LIGHT / f"light_{name}.onnx")
    graph = model.graph
    given = {w.name: numpy_helper.to_array(w) for w in graph.initializer}
    fills = [node for node in graph.node if node.op_type == "ConstantOfShape"]
    shapes = {node.output[0]: tuple(given[node.input[0]].tolist()) for node in fills}
    nodes = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    rng = np.random.default_rng(1)
    weights = {name: _weight(rng, shape) for name, shape in shapes.items()}
    weights |= {name: array for name, array in given.items() if name not in _shapes_of(fills)}
    for at, node in enumerate(nodes):
        node.name = f"{node.op_type}_{at}"
        if node.op_type == "BatchNormalization":
            for position, value in zip(range(1, 5), (0.5, 0.0, 0.0, 1.0), strict=True):
                shape = weights[node.input[position]].shape
                weights[node.input[position]] = np.full(shape, value, np.float32)
        if node.op_type == "Reshape" and node.input[0] not in weights:
            target = weights[node.input[1]].copy()
            target[0] = 0  # as the input has it: the batch
            weights[node.input[1]] = target
    used = {name for node in nodes for name in node.input}
    ends = [
        helper.make_tensor_value_info(v.name, TensorProto.FLOAT, ["batch", *_sizes(v)[1:]])
        for v in (*(v for v in graph.input if v.name not in given), graph.output[0])
    ]
    graph = helper.make_graph(
        nodes,
        name,
        ends[:1],
        ends[1:],
        [numpy_helper.from_array(array, n) for n, array in weights.items() if n in used],
    )
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=_IR_VERSION)


def recurrent() -> onnx.ModelProto:
    """Return a small speech model: two LSTM layers over 48 steps of 160 numbers, a classifier."""
    net = Layers("recurrent", ["batch", 48, 160])
    net.transpose((1, 0, 2)).lstm(160, 256).lstm(256, 192).transpose((1, 0, 2))
    net.mean(1).dense(192, 96).op("Relu").dense(96, 30).op("Softmax", axis=-1)
    return net.model()


def transformer() -> onnx.ModelProto:
    """Return four encoder layers of width 256 over 64 tokens, as exporters write them."""
    net = Layers("transformer", ["batch", 64], TensorProto.INT64)
    net.embedding(1000, 256).norm(256)
    for _ in range(4):
        net.attention(64, 256, 4).feed_forward(256, 1024)
    net.mean(1).dense(256, 20).op("Softmax", axis=-1)
    return net.model()


def text_cnn() -> onnx.ModelProto:
    """Return a text model: embeddings, convolutions of three widths, the maximum of each."""
    net = Layers("text_cnn", ["batch", 80], TensorProto.INT64)
    net.embedding(2000, 128).transpose((0, 2, 1))
    start, ends = net.last, []
    for width in (3, 4, 5):
        net.last = start
        ends.append(net.conv1d(128, 100, width).op("Relu").op("GlobalMaxPool").last)
    net.concat(ends, 1).flatten().dense(300, 5).op("Softmax", axis=-1)
    return net.model()


def mobile() -> onnx.ModelProto:
    """Return MobileNet (the first) at 160 pixels: depthwise and pointwise convolutions."""
    net = Layers("mobile", ["batch", 3, 160, 160])
    net.conv(3, 32, 3, 2).op("Relu")
    channels = 32
    for out, stride in ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)):
        net.conv(channels, channels, 3, stride, groups=channels).op("Relu")
        net.conv(channels, out, 1).op("Relu")
        channels = out
    for out, stride in [(512, 1)] * 5 + [(1024, 2), (1024, 1)]:
        net.conv(channels, channels, 3, stride, groups=channels).op("Relu")
        net.conv(channels, out, 1).op("Relu")
        channels = out
    net.op("GlobalAveragePool").flatten().dense(1024, 1000).op("Softmax", axis=-1)
    return net.model()


MODELS: dict[str, Model] = {
    **{
        name: Model(description, lambda name=name: light(name))  # type: ignore[misc]
        for name, description in {
            "bvlc_alexnet": "convolutions, large dense layers",
            "zfnet512": "convolutions, large dense layers",
            "vgg19": "convolutions, large dense layers",
            "squeezenet": "small convolutions",
            "shufflenet": "grouped convolutions",
            "inception_v1": "branches",
            "inception_v2": "branches",
            "densenet121": "dense connections",
            "resnet50": "residual",
        }.items()
    },
    "mobile": Model("depthwise convolutions", mobile),
    "filetype": Model("trained, byte sequences", models.filetype),
    "wide": Model("dense, weights dominate", lambda: models.mlp((512, 4096, 4096, 512), seed=2)),
    "tiny": Model("dense, overhead dominates", lambda: models.mlp((64, 64, 10), seed=3)),
    "recurrent": Model("LSTM", recurrent),
    "transformer": Model("attention", transformer),
    "text_cnn": Model("text, 1-D convolutions", text_cnn),
}


def build(name: str, folder: Path, make: Callable[[], onnx.ModelProto]) -> Path:
    """Return the file of a model in ``folder``, made there if it is missing."""
    path = folder / f"{name}.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make().SerializeToString())
    return path


def _weight(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    if len(shape) < 2:  # noqa: PLR2004  a bias
        return np.zeros(shape, np.float32)
    scale = math.sqrt(2 / math.prod(shape[1:]))
    return rng.standard_normal(shape, np.float32) * np.float32(scale)


def _shapes_of(fills: list[onnx.NodeProto]) -> set[str]:
    return {node.input[0] for node in fills}


def _sizes(value: onnx.ValueInfoProto) -> list[int]:
    return [dim.dim_value for dim in value.type.tensor_type.shape.dim]
