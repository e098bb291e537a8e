"""Models that were built after the method of `operators --unseen` was final, and run once.

No error of theirs could influence how operators are measured and composed. They are of kinds that
`unseen_models` does not have, as other programs export them, with seeded weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import TensorProto

from benchmarks.layers import Layers
from benchmarks.operator_models import Model

if TYPE_CHECKING:
    import onnx

__all__ = ["LATER"]


def vision_transformer() -> onnx.ModelProto:
    """Return a vision transformer at 160 pixels: patches of 16, five layers of width 192."""
    net = Layers("vision_transformer", ["batch", 3, 160, 160])
    weights = net.weight(192, 3, 16, 16, fan_in=768)
    net.op("Conv", weights, net.weight(192), kernel_shape=[16, 16], strides=[16, 16])
    net.reshape(0, 192, 100).transpose((0, 2, 1)).op("Add", net.weight(100, 192))
    for _ in range(5):
        net.attention(100, 192, 3).feed_forward(192, 768)
    return net.mean(1).dense(192, 100).model()


def grouped() -> onnx.ModelProto:
    """Return a residual classifier at 112 pixels whose 3 by 3 convolutions have 16 groups."""
    net, channels = Layers("grouped", ["batch", 3, 112, 112]), 64
    net.conv(3, 64, 7, 2).op("Relu").pool("MaxPool", 3, 2)
    for inner, out, stride in ((64, 128, 1), (64, 128, 1), (128, 256, 2), (128, 256, 1)):
        start = net.last
        if out != channels:
            net.conv(channels, out, 1, stride)
        skip, net.last = net.last, start
        net.conv(channels, inner, 1).op("Relu").conv(inner, inner, 3, stride, groups=16)
        net.op("Relu").conv(inner, out, 1).op("Add", skip).op("Relu")
        channels = out
    return net.op("GlobalAveragePool").flatten().dense(256, 100).op("Softmax", axis=-1).model()


def recommender() -> onnx.ModelProto:
    """Return a click predictor: 26 embeddings of width 32, their products, four dense layers."""
    net = Layers("recommender", ["batch", 26], TensorProto.INT64)
    vectors = net.embedding(20_000, 32).last
    turned = net.transpose((0, 2, 1)).last
    net.last = vectors
    products = net.op("MatMul", turned).reshape(0, 26 * 26).last
    net.last = vectors
    flat = net.reshape(0, 26 * 32).last
    net.concat([products, flat], 1)
    for inside, outside in ((1508, 512), (512, 256), (256, 64)):
        net.dense(inside, outside).op("Relu")
    return net.dense(64, 1).op("Sigmoid").model()


def denoiser() -> onnx.ModelProto:
    """Return blocks of a diffusion model at 24 pixels: group normalisation, SiLU, attention."""
    net = Layers("denoiser", ["batch", 4, 24, 24])
    net.conv(4, 96, 3)
    for _ in range(2):
        start = net.last
        for _ in range(2):
            _group_norm(net, 96, 24)
            before = net.last
            net.op("Sigmoid").op("Mul", before).conv(96, 96, 3)
        net.op("Add", start)
    net.conv(96, 128, 3, 2).reshape(0, 128, 144).transpose((0, 2, 1)).attention(144, 128, 4)
    net.transpose((0, 2, 1)).reshape(0, 128, 12, 12)
    net.op("Resize", "", net.floats(1, 1, 2, 2), mode="nearest")
    return net.conv(128, 4, 3).model()


def speech() -> onnx.ModelProto:
    """Return a speech recogniser: 200 frames of 80 numbers, two strided convolutions, a GRU."""
    net = Layers("speech", ["batch", 1, 200, 80])
    net.conv(1, 32, 3, 2).op("Relu").conv(32, 32, 3, 2).op("Relu")
    net.transpose((2, 0, 1, 3)).reshape(50, -1, 640).gru(640, 192)
    net.transpose((1, 0, 2)).matmul(192, 320).op("Relu")
    return net.matmul(320, 40).op("LogSoftmax", axis=-1).model()


def style() -> onnx.ModelProto:
    """Return a style transfer network at 96 pixels: reflected edges, instance normalisation."""
    net, channels = Layers("style", ["batch", 3, 96, 96]), 3
    net.op("Pad", net.integers(0, 0, 4, 4, 0, 0, 4, 4), mode="reflect")
    for out, size, stride in ((16, 9, 1), (32, 3, 2), (64, 3, 2)):
        net.conv(channels, out, size, stride)
        net.op("InstanceNormalization", net.weight(out), net.weight(out)).op("Relu")
        channels = out
    for _ in range(3):
        start = net.last
        net.conv(64, 64, 3).op("InstanceNormalization", net.weight(64), net.weight(64))
        net.op("Relu").conv(64, 64, 3).op("Add", start)
    for out in (32, 16):
        net.op("Resize", "", net.floats(1, 1, 2, 2), mode="nearest").conv(channels, out, 3)
        net.op("InstanceNormalization", net.weight(out), net.weight(out)).op("Relu")
        channels = out
    return net.conv(16, 3, 9).op("Tanh").model()


def separator() -> onnx.ModelProto:
    """Return a source separator: 1-D convolutions of stride 4 over 4096 samples, and back."""
    net, channels, skips = Layers("separator", ["batch", 1, 4096]), 1, []
    window = {"kernel_shape": [8], "strides": [4], "pads": [2, 2]}
    for out in (32, 64, 128):
        net.op("Conv", net.weight(out, channels, 8, fan_in=8 * channels), **window).op("Elu")
        skips.append(net.last)
        channels = out
    net.transpose((2, 0, 1)).lstm(128, 128).transpose((1, 2, 0))
    for out in (64, 32, 1):
        weights = net.op("Add", skips.pop()).weight(channels, out, 8, fan_in=2 * channels)
        net.op("ConvTranspose", weights, **window)
        if out > 1:
            net.op("Elu")
        channels = out
    return net.model()


def tabular() -> onnx.ModelProto:
    """Return a network on 200 columns: four layers of 768 with normalisation and residuals."""
    net = Layers("tabular", ["batch", 200])
    net.dense(200, 768)
    for _ in range(4):
        start = net.last
        net.norm(768).dense(768, 768).op("Relu").op("Add", start)
    return net.dense(768, 2).op("Softmax", axis=-1).model()


def _group_norm(net: Layers, channels: int, side: int) -> None:
    """Append group normalisation of eight groups, as exporters of opset 17 write it."""
    net.reshape(0, 8, -1).op("InstanceNormalization", net.weight(8), net.weight(8))
    net.reshape(0, channels, side, side)
    net.op("Mul", net.weight(channels, 1, 1)).op("Add", net.weight(channels, 1, 1))


LATER: dict[str, Model] = {
    make.__name__: Model(kind, make)
    for kind, make in {
        "vision transformer": vision_transformer,
        "grouped convolutions": grouped,
        "recommender": recommender,
        "diffusion": denoiser,
        "speech, GRU": speech,
        "style transfer": style,
        "1-D, LSTM, transposed": separator,
        "tabular": tabular,
    }.items()
}
