"""The model as used by every peer's application: one session, one thread, counted runs.

It runs in the peers' environments, so it depends on NumPy and ONNX Runtime only, not on Carpool.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["BATCH_MAX", "PORT", "RAW", "SHAPE", "WAIT_S", "Model", "row", "row_of_bytes"]

BATCH_MAX = int(os.environ["BENCH_BATCH_MAX"])
PORT = int(os.environ["BENCH_PORT"])
RAW = os.environ["BENCH_RAW"] == "1"
WAIT_S = float(os.environ["BENCH_WAIT_MS"]) / 1e3
SHAPE = tuple(map(int, os.environ["BENCH_SHAPE"].split(",")))

Array = np.ndarray[Any, np.dtype[np.float32]]


class Model:
    """The model of the case, already warmed up."""

    def __init__(self) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        self._session = ort.InferenceSession(
            os.environ["BENCH_MODEL"], options, providers=["CPUExecutionProvider"]
        )
        self._input = self._session.get_inputs()[0].name
        for size in (1, BATCH_MAX):
            self._session.run(None, {self._input: np.zeros((size, *SHAPE), np.float32)})
        self._counts = np.memmap(os.environ["BENCH_COUNTS"], np.int64, "w+", shape=(2,))

    def run(self, rows: Sequence[Array] | Array) -> Array:
        """Return the model's output for the rows."""
        batch = rows if isinstance(rows, np.ndarray) else np.stack(rows)
        self._counts += (1, len(batch))
        outputs: Array = self._session.run(None, {self._input: batch})[0]
        return outputs


def row(body: dict[str, Any]) -> Array:
    """Return the only instance of a parsed ``{"instances": [[...]]}``."""
    return np.array(body["instances"][0], np.float32)


def row_of_bytes(body: bytes) -> Array:
    """Return the row whose float32 values are ``body``."""
    return np.frombuffer(body, np.float32).reshape(SHAPE)
