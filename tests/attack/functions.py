"""The functions that get the bodies: small ones of different kinds, with real handlers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper

from tests.watchdog_plugin import models, processes

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.watchdog_plugin.processes import Handler

__all__ = ["FUNCTIONS", "serve"]

_AUTHOR = """
def handle_batch(items):
    return [item.json() for item in items]
"""
_HOOKS = """
def preprocess(item):
    value = item.json()
    if isinstance(value, dict):
        raise ValueError("as it was told")
    return value


def postprocess(row):
    first = row["y"][0]
    if first == -1:
        raise ValueError("as it was told")
    if first == -2:
        return object()
    if first == -3:
        deep = []
        for _ in range(2000):
            deep = [deep]
        return deep
    return {"row": row["y"]}
"""


def _same(path: Path) -> Path:
    """Write a model that returns its input: ``x`` FP32 [batch, 4] -> ``y``."""
    row: tuple[int, models.Dims] = (TensorProto.FLOAT, ["batch", 4])
    return models.save(path, [helper.make_node("Identity", ["x"], ["y"])], {"x": row}, {"y": row})


def _many(path: Path) -> Path:
    """Write a model that repeats its input: ``x`` FP32 [batch, 1] -> ``y`` [batch, 1024]."""
    return models.save(
        path,
        [helper.make_node("Mul", ["x", "ones"], ["y"])],
        {"x": (TensorProto.FLOAT, ["batch", 1])},
        {"y": (TensorProto.FLOAT, ["batch", 1024])},
        {"ones": np.ones((1, 1024), np.float32)},
    )


FUNCTIONS = {
    "net": (_same, ""),
    "texts": (models.texts, ""),
    "whole": (models.doubler, ""),
    "wide": (models.row_sum, ""),
    "many": (_many, ""),
    "hooks": (_same, _HOOKS),
    "author": (None, _AUTHOR),
}


def serve(name: str, folder: Path, codec: str = "orjson") -> AbstractContextManager[Handler]:
    """A handler process of the function ``name``, its answers limited to a mebibyte.

    Args:
        name: one of `FUNCTIONS`.
        folder: an empty one of its own.
        codec: ``orjson``, or ``json`` as where that is not installed.
    """
    build, code = FUNCTIONS[name]
    (folder / "function").mkdir(parents=True)
    if build:
        build(folder / "function" / "model.onnx")
    if code:
        (folder / "function" / "handler.py").write_text(code)
    path = [processes.ROOT]
    if codec == "json":
        (folder / "without").mkdir()
        (folder / "without" / "orjson.py").write_text("raise ImportError\n")
        path = [folder / "without", *path]
    return processes.start(
        folder, PYTHONPATH=os.pathsep.join(map(str, path)), handler_answer_max_mib="1"
    )
