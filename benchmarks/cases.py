"""The benchmark cases: a model, a form of request, and a latency objective.

A case makes its own request bodies, and knows the correct response to each of them, so that no
server is measured while it responds with something else.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort

from examples import models

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["CASES", "GARBAGE", "OIP", "RAW", "SHORT", "V1", "Case"]

_BODIES = 16
_DIGITS = 6
_TOLERANCE = 1e-3

V1, OIP, RAW = "v1", "oip", "raw"
SHORT, GARBAGE = "one value short", "not the format"


@dataclass(frozen=True, slots=True)
class Case:
    """One model with one form of request.

    Attributes:
        name: of the case, as on the command line.
        model: the example model's name.
        shape: of one row of its input.
        raw: whether a body is float32 bytes; otherwise it is JSON.
        slo_s: 99 % of the responses must arrive within this time of the request's due time.
        batch_max: largest batch, for every server.
        start_rps: rate at which the search for the highest rate begins.
        burst: number of simultaneous requests that can be answered in time.
        handler: source of the handler, if it is not one that runs the model.
    """

    name: str
    model: str
    shape: tuple[int, ...]
    raw: bool
    slo_s: float
    batch_max: int
    start_rps: float
    burst: int = 16
    handler: str = ""

    @property
    def model_path(self) -> Path:
        """Path of the model file, which is built on first use."""
        return models.build(self.model).resolve()

    @property
    def content_type(self) -> str:
        """Content type of a request's body."""
        return "application/octet-stream" if self.raw else "application/json"

    def bodies(self, data: str) -> list[bytes]:
        """Return distinct request bodies in the form ``data`` (v1, oip or raw)."""
        encode: dict[str, Callable[[NDArray[np.float32]], bytes]] = {
            V1: lambda row: _json({"instances": [_numbers(row)]}),
            OIP: lambda row: _json({"inputs": [self._tensor(row)]}),
            RAW: lambda row: row.tobytes(),
        }
        return [encode[data](row) for row in _rows(self.shape)]

    def misfits(self, data: str, draw: int) -> dict[str, bytes]:
        """Return bodies that no model can process, by what is wrong; they vary with ``draw``."""
        row = np.full(self.shape, draw, np.float32).ravel()[:-1]
        if data == RAW:
            return {SHORT: row.tobytes(), GARBAGE: b"\0" * (2 * draw + 1)}
        values = _numbers(row)
        tensor = {"name": "x", "shape": [1, len(values)], "datatype": "FP32", "data": values}
        body = {"instances": [values]} if data == V1 else {"inputs": [tensor]}
        return {SHORT: _json(body), GARBAGE: b'{"in": %d' % draw}

    def is_right(self, answer: bytes, which: int = 0) -> bool:
        """Return whether ``answer`` contains the model's outputs for body number ``which``."""
        numbers = np.frombuffer(answer, np.float32) if self.raw else _first_numbers(answer)
        expected = _expected(str(self.model_path), self.shape)[which]
        return numbers.shape == expected.shape and bool(
            np.allclose(numbers, expected, rtol=_TOLERANCE, atol=_TOLERANCE)
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
        Case(
            "resnet50",
            "resnet50",
            (3, 224, 224),
            raw=True,
            slo_s=1,
            batch_max=8,
            start_rps=8,
            burst=4,
        ),
    )
}


@functools.lru_cache(maxsize=4)
def _rows(shape: tuple[int, ...]) -> list[NDArray[np.float32]]:
    rng = np.random.default_rng(7)
    return [rng.standard_normal(shape).round(_DIGITS).astype(np.float32) for _ in range(_BODIES)]


@functools.lru_cache(maxsize=4)
def _expected(model_path: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return the model's outputs for every body."""
    session = ort.InferenceSession(model_path, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    runs = [session.run(None, {name: row[None]})[0][0] for row in _rows(shape)]
    return np.asarray(runs, np.float32)


def _numbers(row: NDArray[np.float32]) -> list[float]:
    return [round(value, _DIGITS) for value in row.ravel().tolist()]


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _first_numbers(answer: bytes) -> NDArray[np.float32]:
    """Return the innermost list of numbers in a response in any of the servers' JSON forms."""
    try:
        value = json.loads(answer)
        if isinstance(value, dict):
            value = value["outputs"][0]["data"] if "outputs" in value else value["predictions"]
        return np.asarray(value, np.float32).ravel()
    except (ValueError, TypeError, LookupError):
        return np.empty(0, np.float32)
