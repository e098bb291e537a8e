"""Random networks whose operators fill the profile database from which a predictor learns.

Operators are timed in place, between others, because a cache filled by the preceding operator is
half of an operator's time. Sizes are drawn with a seed from the ranges that published networks use;
no network of the benchmark is among them.
"""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

from onnx import TensorProto

from benchmarks.layers import Layers

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx

__all__ = ["SWEEP"]

_BUDGET_FLOP = 6e8  # of one item through a network of convolutions
_BUDGET_WEIGHTS = 15e6  # of a network of convolutions
_ACTIVATIONS = ("Relu", "Relu", "Relu", "Relu", "Sigmoid", "HardSwish", "Clip")


class _Pixels:
    """A network of convolutions that grows at random until it reaches a given cost."""

    def __init__(self, name: str, seed: int) -> None:
        self._draw = random.Random(seed)
        self._side = self._draw.choice([64, 96, 112, 128, 160, 192, 224, 224, 256])
        self.channels = 3
        self.net = Layers(name, ["batch", 3, self._side, self._side])
        self.flop = self.weights = 0.0

    def grow(self, style: str) -> onnx.ModelProto:
        draw, step = self._draw, getattr(self, f"_{style}")
        size = draw.choice([3, 3, 5, 7, 7, 11])
        self.conv(draw.choice([16, 24, 32, 48, 64, 64, 96]), size, draw.choice([2, 2, 2, 4, 1]))
        if style == "large":
            self.norm()
        if self._side > 64:  # noqa: PLR2004  as networks do
            self.shrink()
        for _ in range(40):
            step()
            if self.flop > _BUDGET_FLOP or self.weights > _BUDGET_WEIGHTS:
                break
            if draw.random() < 0.3 and self._side > 9:  # noqa: PLR2004  leave some pixels
                self.shrink()
        return self._head()

    def conv(self, outside: int, size: int, stride: int = 1, groups: int = 1) -> None:
        self.net.conv(self.channels, outside, size, stride, groups)
        self._side = (self._side + 2 * (size // 2) - size) // stride + 1
        self.flop += 2 * outside * self.channels / groups * size**2 * self._side**2
        self.weights += outside * self.channels / groups * size**2
        self.channels = outside

    def shrink(self) -> None:
        self.net.pool(self._draw.choice(["MaxPool", "MaxPool", "AveragePool"]), 3, 2)
        self._side = (self._side - 1) // 2 + 1

    def norm(self) -> None:
        self.activate()
        self.net.op("LRN", size=5, alpha=1e-4, beta=0.75, bias=1.0)

    def activate(self) -> None:
        kind = self._draw.choice(_ACTIVATIONS)
        limits = (self.net.scalar(0.0), self.net.scalar(6.0)) if kind == "Clip" else ()
        self.net.op(kind, *limits)

    def _wider(self) -> int:
        most = min(1024, max(32, 2 * self.channels))
        step = self._draw.choice([1, 8, 16, 16, 32])
        return max(16, self._draw.randint(self.channels // 3, most) // step * step)

    def _large(self) -> None:
        self.conv(
            self._wider(), self._draw.choice([1, 3, 3, 3, 5]), self._draw.choice([1, 1, 1, 2])
        )
        self.activate()
        if self._draw.random() < 0.15:  # noqa: PLR2004  now and then
            self.norm()

    def _residual(self) -> None:
        start, channels = self.net.last, self.channels
        inner = max(16, channels // self._draw.choice([1, 2, 4]))
        self.conv(inner, 1)
        self.net.op("Relu")
        self.conv(inner, 3)
        self.net.op("Relu")
        self.conv(channels, 1)
        self.net.op("Add", start).op("Relu")
        if self._draw.random() < 0.4:  # noqa: PLR2004  now and then
            self.conv(min(2048, 2 * self.channels), 1, self._draw.choice([1, 2]))
            self.net.op("Relu")

    def _depthwise(self) -> None:
        self.conv(
            self.channels, self._draw.choice([3, 3, 5]), self._draw.choice([1, 1, 2]), self.channels
        )
        self.activate()
        self.conv(max(16, self._wider() // 16 * 16), 1)
        self.activate()

    def _branches(self) -> None:
        start, channels, side, ends, total = self.net.last, self.channels, self._side, [], 0
        for size in (1, 3, 3, 5):
            self.net.last, self.channels, self._side = start, channels, side
            if size > 1:
                self.conv(self._draw.choice([16, 24, 32, 64, 96]), 1)
                self.net.op("Relu")
            self.conv(self._draw.choice([16, 32, 48, 64, 96, 128, 192]), size)
            ends.append(self.net.op("Relu").last)
            total += self.channels
        self.net.concat(ends, 1)
        self.channels = total

    def _dense(self) -> None:
        start, channels = self.net.last, self.channels
        self.net.op("Mul", self.net.weight(channels, 1, 1)).op(
            "Add", self.net.weight(channels, 1, 1)
        )
        self.net.op("Relu")
        self.conv(self._draw.choice([64, 96, 128]), 1)
        self.net.op("Relu")
        grown = self._draw.choice([16, 24, 32, 48])
        self.conv(grown, 3)
        self.net.concat([start, self.net.last], 1)
        self.channels = channels + grown
        if self._draw.random() < 0.15:  # noqa: PLR2004  now and then
            self.conv(self.channels // 2, 1)
            self.shrink()

    def _grouped(self) -> None:
        groups = self._draw.choice([2, 3, 4, 8])
        inner = groups * self._draw.randint(6, 40)
        if self.channels % groups:
            self.conv(inner, 1)
        self.conv(inner, 1, 1, groups)
        self.net.op("Relu")
        side, each = self._side, inner // groups
        self.net.reshape(0, groups, each, side, side).transpose((0, 2, 1, 3, 4))
        self.net.reshape(0, inner, side, side)
        self.conv(inner, 3, 1, inner)
        start = self.net.last
        self.conv(inner, self._draw.choice([1, 3]), 1, groups)
        self.net.op("Sum", start).op("Relu")

    def _head(self) -> onnx.ModelProto:
        draw = self._draw
        if self.channels * self._side**2 < 12000 and draw.random() < 0.5:  # noqa: PLR2004  as older ones
            inside, outside = self.channels * self._side**2, draw.choice([512, 1024, 4096])
            self.net.flatten().dense(inside, outside).op("Relu").dense(outside, 1000)
        else:
            self.net.op("GlobalAveragePool").flatten().dense(self.channels, 1000)
        return self.net.op("Softmax", axis=-1).model()


def _layers(seed: int) -> onnx.ModelProto:
    """Return fully connected layers; the weights of the last ones exceed the caches."""
    draw = random.Random(seed)
    largest = [64, 256, 1024, 2048, 4096, 8192][seed % 6]
    widths = [
        draw.randint(max(8, largest // 8), min(2048, largest)) for _ in range(draw.randint(2, 7))
    ]
    widths[seed % len(widths)] = largest
    net = Layers(f"layers_{seed}", ["batch", widths[0]])
    for inside, outside in itertools.pairwise(widths):
        net.dense(inside, outside).op(draw.choice(["Relu", "Relu", "Sigmoid", "Tanh"]))
    return net.dense(widths[-1], draw.randint(4, 1000)).op("Softmax", axis=-1).model()


def _little(seed: int) -> onnx.ModelProto:
    """Return a few operators that take hardly any time, to expose the fixed cost of a run."""
    draw = random.Random(seed)
    width = draw.choice([4, 10, 16, 32, 50, 100])
    net = Layers(f"little_{seed}", ["batch", width])
    for _ in range(seed % 5 + 1):
        outside = draw.choice([1, 4, 10, 16, 32, 50, 100])
        net.dense(width, outside).op(draw.choice(["Relu", "Sigmoid", "Tanh", "Softmax"]))
        if draw.random() < 0.5:  # noqa: PLR2004  now and then
            net.op("Mul", net.weight(outside)).add(outside)
        width = outside
    return net.dense(width, draw.randint(1, 20)).model()


def _steps(seed: int) -> onnx.ModelProto:
    """Return recurrent layers."""
    draw = random.Random(seed)
    inside, length = draw.choice([40, 64, 128, 256]), draw.choice([10, 20, 40, 80, 120])
    net = Layers(f"steps_{seed}", ["batch", length, inside]).transpose((1, 0, 2))
    for _ in range(3):
        hidden = draw.choice([64, 96, 128, 160, 256, 320, 384, 512])
        (net.lstm if seed % 3 else net.gru)(inside, hidden)
        inside = hidden
    return net.transpose((1, 0, 2)).mean(1).dense(inside, 50).op("Softmax", axis=-1).model()


def _tokens(seed: int) -> onnx.ModelProto:
    """Return encoder layers over tokens."""
    draw = random.Random(seed)
    heads, each = draw.choice([2, 4, 6, 8]), draw.choice([32, 48, 64])
    steps, width = draw.choice([16, 32, 48, 96, 128]), heads * each
    net = Layers(f"tokens_{seed}", ["batch", steps], TensorProto.INT64)
    net.embedding(500, width).norm(width)
    for _ in range(2):
        net.attention(steps, width, heads).feed_forward(width, draw.choice([2, 3, 4]) * width)
    return net.mean(1).dense(width, 10).op("Softmax", axis=-1).model()


def _sequences(seed: int) -> onnx.ModelProto:
    """Return convolutions over sequences, and elementwise operators."""
    draw = random.Random(seed)
    length, width = draw.choice([50, 100, 200, 500, 1000]), draw.choice([32, 64, 128, 200])
    net = Layers(f"sequences_{seed}", ["batch", length], TensorProto.INT64)
    net.embedding(1000, width).op("Tanh").transpose((0, 2, 1))
    for size in draw.sample([1, 2, 3, 4, 5, 7], 3):
        outside = draw.choice([32, 64, 100, 128, 256])
        net.conv1d(width, outside, size).op("Relu")
        length, width = length - size + 1, outside
        before = net.op(draw.choice(["Sigmoid", "Exp", "Tanh"])).last
        net.op("Mul", net.scalar(0.5)).op("Add", before).op("Sqrt").op("Sub", before)
        net.op("Max", net.scalar(0.0)).op("Transpose", perm=[0, 2, 1])
        mean = Layers.op(net, "ReduceSum", net.integers(-1), keepdims=1).last
        net.op("Reciprocal").op("Mul", before2 := mean).op("Expand", net.integers(1, length, width))
        del before2
        net.op("Transpose", perm=[0, 2, 1]).op("Add", before)
    ends = [net.op("GlobalMaxPool").flatten().last]
    return net.concat(ends, 1).dense(width, 20).op("Softmax", axis=-1).model()


_STYLES = ("large", "residual", "depthwise", "branches", "dense", "grouped")


def _pixels(style: str, seed: int) -> Callable[[], onnx.ModelProto]:
    return lambda: _Pixels(f"{style}_{seed}", seed).grow(style)


SWEEP: dict[str, Callable[[], onnx.ModelProto]] = {
    **{
        f"{style}_{seed}": _pixels(style, seed + 100 * at)
        for at, style in enumerate(_STYLES)
        for seed in range(6)
    },
    **{f"layers_{seed}": (lambda seed=seed: _layers(seed)) for seed in range(12)},  # type: ignore[misc]
    **{f"steps_{seed}": (lambda seed=seed: _steps(seed)) for seed in range(8)},  # type: ignore[misc]
    **{f"tokens_{seed}": (lambda seed=seed: _tokens(seed)) for seed in range(8)},  # type: ignore[misc]
    **{f"sequences_{seed}": (lambda seed=seed: _sequences(seed)) for seed in range(10)},  # type: ignore[misc]
    **{f"little_{seed}": (lambda seed=seed: _little(seed)) for seed in range(10)},  # type: ignore[misc]
}
