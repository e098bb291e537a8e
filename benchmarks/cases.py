"""What is measured: a model, the form of a request, and the latency that must be kept.

A case makes its own request bodies, and knows the answer that a server must give to the first of
them, so that nobody is measured answering something else.
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort

from examples import models

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["CASES", "Case"]

_BODIES = 16
_DIGITS = 6
_TOLERANCE = 1e-3

V1, OIP, RAW = "v1", "oip", "raw"


@dataclass(frozen=True, slots=True)
class Case:
    """One model under one form of request.

    Attributes:
        name: of the case, as on the command line.
        model: the example model's name.
        shape: of one row of its input.
        raw: whether a body is float32 bytes; else it is JSON.
        slo_s: 99 % of the answers must come within this time of the request's due time.
        batch_max: largest batch, for every server.
        start_rps: where the search for the highest rate begins.
    """

    name: str
    model: str
    shape: tuple[int, ...]
    raw: bool
    slo_s: float
    batch_max: int
    start_rps: float

    @property
    def model_path(self) -> Path:
        """The model's file, built when it is first asked for."""
        return models.build(self.model).resolve()

    @property
    def content_type(self) -> str:
        """Of a request's body."""
        return "application/octet-stream" if self.raw else "application/json"

    def bodies(self, form: str) -> list[bytes]:
        """Request bodies in ``form`` (v1, oip or raw), different from one another."""
        encode: dict[str, Callable[[NDArray[np.float32]], bytes]] = {
            V1: lambda row: _json({"instances": [_numbers(row)]}),
            OIP: lambda row: _json({"inputs": [self._tensor(row)]}),
            RAW: lambda row: row.tobytes(),
        }
        return [encode[form](row) for row in _rows(self.shape)]

    def is_right(self, answer: bytes) -> bool:
        """Whether ``answer`` carries the model's outputs for the first body."""
        found = np.frombuffer(answer, np.float32) if self.raw else _first_numbers(answer)
        expected = _expected(str(self.model_path), self.shape)
        return found.shape == expected.shape and bool(
            np.allclose(found, expected, rtol=_TOLERANCE, atol=_TOLERANCE)
        )

    def _tensor(self, row: NDArray[np.float32]) -> dict[str, Any]:
        shape = [1, *self.shape]
        return {"name": "x", "shape": shape, "datatype": "FP32", "data": _numbers(row)}


CASES = {
    case.name: case
    for case in (
        Case("tiny", "tiny", (64,), raw=False, slo_s=0.05, batch_max=64, start_rps=4000),
        Case("wide", "wide", (512,), raw=False, slo_s=0.1, batch_max=32, start_rps=600),
        Case("wide-raw", "wide", (512,), raw=True, slo_s=0.1, batch_max=32, start_rps=600),
        Case("resnet50", "resnet50", (3, 224, 224), raw=True, slo_s=1, batch_max=8, start_rps=8),
    )
}


@functools.lru_cache(maxsize=4)
def _rows(shape: tuple[int, ...]) -> list[NDArray[np.float32]]:
    rng = np.random.default_rng(7)
    return [rng.standard_normal(shape).round(_DIGITS).astype(np.float32) for _ in range(_BODIES)]


@functools.lru_cache(maxsize=4)
def _expected(model_path: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    session = ort.InferenceSession(model_path, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    outputs = session.run(None, {name: _rows(shape)[0][None]})
    return np.asarray(outputs[0][0], np.float32)


def _numbers(row: NDArray[np.float32]) -> list[float]:
    return [round(value, _DIGITS) for value in row.ravel().tolist()]


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _first_numbers(answer: bytes) -> NDArray[np.float32]:
    """The innermost list of numbers in an answer of any of the servers' JSON forms."""
    try:
        value = json.loads(answer)
    except ValueError:
        return np.empty(0, np.float32)
    if isinstance(value, dict) and "outputs" in value:
        value = value["outputs"][0]["data"]
    elif isinstance(value, dict):
        value = value.get("predictions", [])
    numbers = np.asarray(value, np.float32)
    return numbers.reshape(math.prod(numbers.shape))
