"""The model behind Mosec, with one worker and one stage."""

from __future__ import annotations

import os
from typing import Any

import orjson
from model import BATCH_MAX, RAW, Array, Model, row, row_of_bytes
from mosec import Server, Worker
from mosec.errors import DecodingError

ORJSON = os.environ["BENCH_JSON"] == "orjson"


class Bench(Worker):
    """Worker whose JSON is handled by Mosec's base class."""

    def __init__(self) -> None:
        super().__init__()
        self._model = Model()

    def forward(self, data: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the predictions for a batch of parsed bodies."""
        outputs = self._model.run([row(body) for body in data])
        return [{"predictions": [out]} for out in outputs.tolist()]


class BenchOrjson(Bench):
    """Worker whose JSON is handled by orjson, directly from NumPy arrays."""

    def deserialize(self, data: bytes) -> object:
        """Parse a body; refuse an invalid one as the base class does."""
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise DecodingError from error

    def forward(self, data: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the predictions for a batch of parsed bodies."""
        outputs = self._model.run([row(body) for body in data])
        return [{"predictions": out[None]} for out in outputs]

    def serialize(self, data: object) -> bytes:
        """Return the body of one response."""
        return orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY)


class BenchRaw(Bench):
    """Worker with float32 bytes as bodies."""

    def deserialize(self, data: bytes) -> Array:
        """Return the row of a body."""
        return row_of_bytes(data)

    def forward(self, data: list[Array]) -> list[Array]:
        """Return the predictions for a batch of rows."""
        return list(self._model.run(data))

    def serialize(self, data: Array) -> bytes:
        """Return the body of one response."""
        return data.tobytes()


if __name__ == "__main__":
    server = Server()
    kind = BenchRaw if RAW else BenchOrjson if ORJSON else Bench
    server.append_worker(kind, num=1, max_batch_size=BATCH_MAX)  # the window comes as --wait
    server.run()
