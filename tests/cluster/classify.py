"""The README's example function: an ONNX model that classifies four numbers into three classes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
import requests

from tests.cluster.function_image import build_archive

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["IMAGE", "INFER", "ROW", "answer", "archive", "expected", "request", "write_stack"]

IMAGE = "carpool.test/classify:1"
INFER = "v2/models/classify/infer"
ROW = (5.1, 3.5, 1.4, 0.2)
_TEMPLATE = Path(__file__).resolve().parents[2] / "templates" / "python3-onnx-batch"
_STACK = f"""\
provider: {{name: openfaas}}
functions:
  classify: {{lang: python3-onnx-batch, handler: ./classify, image: "{IMAGE}"}}
"""


def archive(folder: Path) -> Path:
    """Build the function's image in a new folder, and return its archive."""
    write_stack(folder)
    return build_archive(folder, IMAGE)


def write_stack(folder: Path) -> None:
    """Write the function's stack file, template and handler to a new folder, as in the README."""
    shutil.copytree(_TEMPLATE.parent, folder / "template")
    shutil.copytree(_TEMPLATE / "function", folder / "classify")
    (folder / "classify" / "example.onnx").rename(folder / "classify" / "model.onnx")
    (folder / "stack.yaml").write_text(_STACK)


def request(row: Sequence[float]) -> dict[str, object]:
    """Return the request for the classes of a row."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, len(row)], "data": list(row)}
    return {"inputs": [tensor]}


def answer(url: str, row: Sequence[float] = ROW, timeout_s: float = 10) -> list[float] | None:
    """Return the probabilities from a function at ``url``; None if it does not answer."""
    try:
        got = requests.post(f"{url}/{INFER}", json=request(row), timeout=timeout_s)
    except requests.RequestException:
        return None
    if not got.ok:
        return None
    data: list[float] = got.json()["outputs"][0]["data"]
    return data


def expected(row: Sequence[float]) -> list[float]:
    """Return the model's result, computed locally."""
    path = _TEMPLATE / "function" / "example.onnx"
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    given: list[float] = session.run(None, {"x": np.array([row], np.float32)})[0][0].tolist()
    return given
