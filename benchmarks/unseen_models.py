"""Models that played no part in choosing how operators are composed, nor in the package's profiles.

They have the shapes of well-known models: detectors, recognisers, U-Nets, upscalers, encoders,
decoders, recurrent and quantised ones. They are built here with seeded weights; nothing is
downloaded.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks.layers import Layers
from benchmarks.operator_models import Model

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["UNSEEN"]

_MICROSOFT = "com.microsoft"


def unet() -> onnx.ModelProto:
    """Return a U-Net at 96 pixels: three levels, transposed convolutions, skip connections."""
    net, skips, channels = Layers("unet", ["batch", 3, 96, 96]), [], 3
    for out in (24, 48, 96):
        net.conv(channels, out, 3).op("Relu").conv(out, out, 3).op("Relu")
        skips.append((net.last, out))
        net.op("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
        channels = out
    net.conv(96, 192, 3).op("Relu")
    channels = 192
    for skip, out in reversed(skips):
        weights = net.weight(channels, out, 2, 2, fan_in=channels)
        net.op("ConvTranspose", weights, kernel_shape=[2, 2], strides=[2, 2])
        net.concat([net.last, skip], 1).conv(2 * out, out, 3).op("Relu")
        channels = out
    return net.conv(channels, 2, 1).op("Sigmoid").model()


def detector() -> onnx.ModelProto:
    """Return a one-stage detector at 192 pixels.

    It has SiLU, a pyramid with nearest-neighbour upsampling, and three heads.
    """
    net, levels, channels = Layers("detector", ["batch", 3, 192, 192]), [], 3
    for at, out in enumerate((16, 32, 64, 96, 128)):
        _silu(net.conv(channels, out, 3, 2))
        start = net.last
        _silu(_silu(net.conv(out, out // 2, 1)).conv(out // 2, out, 3)).op("Add", start)
        channels = out
        if at >= 2:  # noqa: PLR2004  the last three
            levels.append((net.last, out))
    heads = []
    for skip, out in reversed(levels[:-1]):
        net.op(
            "Resize",
            "",
            net.floats(1, 1, 2, 2),
            mode="nearest",
            nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        )
        net.concat([net.last, skip], 1)
        _silu(net.conv(channels + out, out, 1))
        start, channels = net.last, out
        net.conv(out, 21, 1).reshape(0, 21, -1)
        heads.append(net.last)
        net.last = start
    return net.concat(heads, 2).transpose((0, 2, 1)).op("Sigmoid").model()


def recogniser() -> onnx.ModelProto:
    """Return a recogniser of text lines, 32 by 160 pixels: convolutions and two BiLSTM layers."""
    net, channels = Layers("recogniser", ["batch", 1, 32, 160]), 1
    for out, window in ((32, (2, 2)), (64, (2, 2)), (128, (2, 1)), (128, (2, 1)), (192, (2, 1))):
        net.conv(channels, out, 3).op("Relu")
        net.op("MaxPool", kernel_shape=list(window), strides=list(window))
        channels = out
    net.op("Squeeze", net.integers(2)).transpose((2, 0, 1))
    for inside in (192, 192):
        _both_ways(net, "LSTM", 4, inside, 96).reshape(40, -1, 192)
    return net.transpose((1, 0, 2)).matmul(192, 80).op("Softmax", axis=-1).model()


def gru_tagger() -> onnx.ModelProto:
    """Return a tagger: embeddings, two GRU layers over 64 steps, a tag for each step."""
    net = Layers("gru_tagger", ["batch", 64], TensorProto.INT64)
    net.embedding(3000, 96).transpose((1, 0, 2)).gru(96, 160).gru(160, 160)
    return net.transpose((1, 0, 2)).matmul(160, 24).op("LogSoftmax", axis=-1).model()


def encoder() -> onnx.ModelProto:
    """Return six BERT-like layers of width 384 over 96 tokens."""
    net = Layers("encoder", ["batch", 96], TensorProto.INT64)
    net.embedding(4000, 384).norm(384)
    for _ in range(6):
        net.attention(96, 384, 6).feed_forward(384, 1536)
    return net.mean(1).dense(384, 2).op("Tanh").model()


def decoder() -> onnx.ModelProto:
    """Return three decoder layers of width 320 over 48 tokens, with a vocabulary of 5000."""
    net = Layers("decoder", ["batch", 48], TensorProto.INT64)
    net.embedding(5000, 320)
    for _ in range(3):
        net.norm(320).attention(48, 320, 5).feed_forward(320, 1280)
    return net.matmul(320, 5000).model()


def dilated() -> onnx.ModelProto:
    """Return a temporal convolutional network: eight dilated gated blocks over 512 steps."""
    net = Layers("dilated", ["batch", 40, 512])
    net.op("Conv", net.weight(64, 40, 1, fan_in=40), kernel_shape=[1])
    for at in range(8):
        start, step = net.last, 2 ** (at % 6)
        weights = net.weight(128, 64, 3, fan_in=192)
        net.op("Conv", weights, kernel_shape=[3], dilations=[step], pads=[step, step])
        both = net.last
        halves = [_slice(net, both, begin, begin + 64).last for begin in (0, 64)]
        net.last = halves[0]
        gate = net.op("Tanh").last
        net.last = halves[1]
        net.op("Sigmoid").op("Mul", gate)
        net.op("Conv", net.weight(64, 64, 1, fan_in=64), kernel_shape=[1]).op("Add", start)
    return net.op("Relu").op("Conv", net.weight(32, 64, 1, fan_in=64), kernel_shape=[1]).model()


def upscaler() -> onnx.ModelProto:
    """Return a model for super-resolution by three from 72 pixels: PRelu, depth to space."""
    net = Layers("upscaler", ["batch", 1, 72, 72])
    net.conv(1, 48, 5).op("PRelu", net.weight(48, 1, 1)).conv(48, 16, 1)
    for _ in range(3):
        net.op("PRelu", net.weight(16, 1, 1)).conv(16, 16, 3)
    net.op("PRelu", net.weight(16, 1, 1)).conv(16, 9, 3)
    return net.op("DepthToSpace", blocksize=3).op("Clip", net.scalar(0), net.scalar(1)).model()


def squeeze_excite() -> onnx.ModelProto:
    """Return an efficient classifier at 128 pixels: inverted bottlenecks, squeeze-excitation."""
    net, channels = Layers("squeeze_excite", ["batch", 3, 128, 128]), 24
    net.conv(3, 24, 3, 2).op("HardSwish")
    for out, size, stride in (
        (24, 3, 1),
        (40, 5, 2),
        (40, 5, 1),
        (80, 3, 2),
        (80, 3, 1),
        (112, 5, 2),
    ):
        start, inner = net.last, 4 * channels
        net.conv(channels, inner, 1).op("HardSwish")
        net.conv(inner, inner, size, stride, groups=inner).op("HardSwish")
        wide = net.last
        net.op("GlobalAveragePool").conv(inner, inner // 8, 1).op("Relu")
        net.conv(inner // 8, inner, 1).op("HardSigmoid").op("Mul", wide).conv(inner, out, 1)
        if stride == 1 and out == channels:
            net.op("Add", start)
        channels = out
    return net.op("GlobalAveragePool").flatten().dense(112, 100).op("Softmax", axis=-1).model()


def convnext() -> onnx.ModelProto:
    """Return blocks of depthwise 7 by 7 windows, channels last, layer normalisation and GELU."""
    net, width = Layers("convnext", ["batch", 3, 128, 128]), 64
    net.op("Conv", net.weight(64, 3, 4, 4, fan_in=48), kernel_shape=[4, 4], strides=[4, 4])
    for out in (64, 128):
        if out != width:
            weights = net.weight(out, width, 2, 2, fan_in=4 * width)
            net.op("Conv", weights, kernel_shape=[2, 2], strides=[2, 2])
        width = out
        for _ in range(3):
            start = net.last
            net.conv(width, width, 7, groups=width).transpose((0, 2, 3, 1)).norm(width)
            net.matmul(width, 4 * width).gelu().matmul(4 * width, width)
            net.transpose((0, 3, 1, 2)).op("Add", start)
    return net.op("GlobalAveragePool").flatten().dense(128, 50).model()


def mixer() -> onnx.ModelProto:
    """Return six mixer blocks over 49 patches of width 192."""
    net = Layers("mixer", ["batch", 49, 192])
    for _ in range(6):
        start = net.last
        net.norm(192).transpose((0, 2, 1)).matmul(49, 128).gelu().matmul(128, 49)
        net.transpose((0, 2, 1)).op("Add", start)
        start = net.last
        net.norm(192).matmul(192, 768).gelu().matmul(768, 192).op("Add", start)
    return net.mean(1).dense(192, 10).model()


def fused() -> onnx.ModelProto:
    """Return four encoder layers of the runtime's own fused operators, width 256, 80 tokens."""
    net = Layers("fused", ["batch", 80, 256])
    for _ in range(4):
        start = net.last
        weights = net.weight(256, 768, fan_in=256), net.weight(768)
        net.op("Attention", *weights, num_heads=8, domain=_MICROSOFT).matmul(256, 256)
        net.op("SkipLayerNormalization", start, net.weight(256), net.weight(256), domain=_MICROSOFT)
        start = net.last
        net.op("MatMul", net.weight(256, 1024, fan_in=256))
        net.op("FastGelu", net.weight(1024), domain=_MICROSOFT).matmul(1024, 256)
        net.op("SkipLayerNormalization", start, net.weight(256), net.weight(256), domain=_MICROSOFT)
    return _with_contrib(net.mean(1).model())


def autoencoder() -> onnx.ModelProto:
    """Return a convolutional autoencoder at 64 pixels, with overlapping transposed windows."""
    net, channels = Layers("autoencoder", ["batch", 3, 64, 64]), 3
    for out in (32, 64, 128):
        net.conv(channels, out, 3, 2).op("LeakyRelu", alpha=0.1)
        channels = out
    for out in (64, 32, 3):
        weights = net.weight(channels, out, 4, 4, fan_in=channels * 4)
        net.op("ConvTranspose", weights, kernel_shape=[4, 4], strides=[2, 2], pads=[1, 1, 1, 1])
        net.op("LeakyRelu", alpha=0.1)
        channels = out
    return net.op("Tanh").model()


def segmenter() -> onnx.ModelProto:
    """Return a segmentation model at 112 pixels: dilated context, linear upsampling by eight."""
    net, channels = Layers("segmenter", ["batch", 3, 112, 112]), 3
    for out in (24, 48, 96):
        net.conv(channels, out, 3, 2).op("Relu").conv(out, out, 3, groups=out).op("Relu")
        channels = out
    start, ends = net.last, []
    for step in (1, 2, 4):
        net.last = start
        weights = net.weight(64, 96, 3, 3, fan_in=864)
        net.op("Conv", weights, kernel_shape=[3, 3], dilations=[step] * 2, pads=[step] * 4)
        ends.append(net.op("Relu").last)
    net.concat(ends, 1).conv(192, 19, 1)
    return net.op("Resize", "", net.floats(1, 1, 8, 8), mode="linear").model()


def keyword() -> onnx.ModelProto:
    """Return a keyword spotter: few depthwise blocks over 49 frames of 10 numbers."""
    net = Layers("keyword", ["batch", 1, 49, 10])
    net.conv(1, 64, 5, 2).op("Relu")
    for _ in range(4):
        net.conv(64, 64, 3, groups=64).op("Relu").conv(64, 64, 1).op("Relu")
    return net.op("GlobalAveragePool").flatten().dense(64, 12).op("Softmax", axis=-1).model()


def int8_static() -> onnx.ModelProto:
    """Return an integer residual classifier at 96 pixels, by the runtime's static quantisation."""
    from onnxruntime.quantization import (  # noqa: PLC0415  of the runtime
        CalibrationDataReader,
        QuantFormat,
        quantize_static,
    )

    class Some(CalibrationDataReader):  # type: ignore[misc]
        """Calibration data of two batches."""

        def __init__(self) -> None:
            rng = np.random.default_rng(5)
            self._left = [rng.standard_normal((1, 3, 96, 96), np.float32) for _ in range(2)]

        def get_next(self) -> dict[str, np.ndarray] | None:
            """Return the next batch, or None after the last."""
            return {"input": self._left.pop()} if self._left else None

    return _quantised(
        _residual(), lambda source, to: quantize_static(source, to, Some(), QuantFormat.QOperator)
    )


def int8_dynamic() -> onnx.ModelProto:
    """Return two encoder layers with integer matrix products, quantised at run time."""
    from onnxruntime.quantization import quantize_dynamic  # noqa: PLC0415  of the runtime

    net = Layers("int8_dynamic", ["batch", 64], TensorProto.INT64)
    net.embedding(1000, 256).norm(256)
    for _ in range(2):
        net.attention(64, 256, 4).feed_forward(256, 1024)
    model = net.mean(1).dense(256, 20).model()
    return _quantised(model, quantize_dynamic)


UNSEEN: dict[str, Model] = {
    make.__name__: Model(kind, make)
    for kind, make in {
        "transposed convolutions": unet,
        "detector, upsampling": detector,
        "text recogniser, BiLSTM": recogniser,
        "GRU": gru_tagger,
        "BERT-like encoder": encoder,
        "decoder, large vocabulary": decoder,
        "dilated 1-D convolutions": dilated,
        "super-resolution": upscaler,
        "squeeze and excitation": squeeze_excite,
        "depthwise 7x7, GELU": convnext,
        "MLP-Mixer": mixer,
        "fused attention": fused,
        "autoencoder": autoencoder,
        "segmentation": segmenter,
        "small, depthwise": keyword,
        "int8, static": int8_static,
        "int8, dynamic": int8_dynamic,
    }.items()
}


def _silu(net: Layers) -> Layers:
    before = net.last
    return net.op("Sigmoid").op("Mul", before)


def _slice(net: Layers, name: str, begin: int, end: int) -> Layers:
    net.last = name
    return net.op("Slice", net.integers(begin), net.integers(end), net.integers(1))


def _both_ways(net: Layers, kind: str, gates: int, inside: int, hidden: int) -> Layers:
    weights = [
        net.weight(2, gates * hidden, inside, fan_in=inside),
        net.weight(2, gates * hidden, hidden, fan_in=hidden),
        net.weight(2, 2 * gates * hidden),
    ]
    net.op(kind, *weights, hidden_size=hidden, direction="bidirectional")
    return net.transpose((0, 2, 1, 3))


def _residual() -> onnx.ModelProto:
    net, channels = Layers("int8_static", ["batch", 3, 96, 96]), 32
    net.conv(3, 32, 3, 2).op("Relu")
    for out in (32, 64, 128):
        if out != channels:
            net.conv(channels, out, 3, 2).op("Relu")
        start, channels = net.last, out
        net.conv(out, out, 3).op("Relu").conv(out, out, 3).op("Add", start).op("Relu")
    return net.op("GlobalAveragePool").flatten().dense(128, 100).model()


def _quantised(model: onnx.ModelProto, quantise: Callable[[str, str], None]) -> onnx.ModelProto:
    with tempfile.TemporaryDirectory() as folder:
        source, to = Path(folder) / "source.onnx", Path(folder) / "to.onnx"
        source.write_bytes(onnx.shape_inference.infer_shapes(model).SerializeToString())
        quantise(str(source), str(to))
        return onnx.load(to)


def _with_contrib(model: onnx.ModelProto) -> onnx.ModelProto:
    model.opset_import.append(helper.make_opsetid(_MICROSOFT, 1))
    return model
