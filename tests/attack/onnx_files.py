"""Mutated ONNX files for the graph reader and for the handler that loads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper

from carpool.errors import ConfigError
from carpool.onnx_graph.optimised import read_graph
from tests.attack.mutations import mutated_bytes, outcomes
from tests.carpool.onnx_graph.models import model
from tests.watchdog_plugin import models
from watchdog_plugin.function import LoadError
from watchdog_plugin.onnx.model import OnnxModel

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["loaded", "read", "seeds"]


def seeds(folder: Path) -> list[bytes]:
    """Return valid models with every kind of attribute, and with operators to fold and share."""
    paths = [models.mlp(folder / "mlp"), models.doubler(folder / "doubler"), _convolution(folder)]
    kinds = {"axis": -2, "scale": 0.5, "to": [1, -1], "steps": [1.0, 0.25], "mode": "linear"}
    made = model(np.ones((3, 5), np.float32), kinds).SerializeToString()
    return [*[path.read_bytes() for path in paths], made]


def read(folder: Path, numbers: Iterable[int]) -> Counter[str]:
    """Read files as `carpool predict` does, which may raise only `ConfigError`."""
    path = folder / "read.onnx"

    def once(data: bytes) -> None:
        path.write_bytes(data)
        read_graph(path)

    return outcomes(once, mutated_bytes(seeds(folder), numbers), ConfigError)


def loaded(folder: Path, numbers: Iterable[int]) -> Counter[str]:
    """Load files as a handler does at its start, which may raise only `LoadError`."""
    path = folder / "loaded.onnx"

    def once(data: bytes) -> None:
        path.write_bytes(data)
        OnnxModel(path, 1).warm_up([1])

    return outcomes(once, mutated_bytes(seeds(folder), numbers), LoadError)


def _convolution(folder: Path) -> Path:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", *"ssss"], ["n"], epsilon=0.25),
        helper.make_node("LeakyRelu", ["n"], ["y"], alpha=0.5),
    ]
    return models.save(
        folder / "convolution",
        nodes,
        {"x": (TensorProto.FLOAT, ["batch", 3, 8, 8])},
        {"y": (TensorProto.FLOAT, ["batch", 4, 8, 8])},
        {"w": np.ones((4, 3, 3, 3), np.float32), "s": np.ones(4, np.float32)},
    )
