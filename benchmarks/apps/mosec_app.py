"""The model behind Mosec: one worker, one stage."""

from __future__ import annotations

import os
from typing import Any

import orjson
from model import BATCH_MAX, RAW, Array, Model, row, row_of_bytes
from mosec import Server, Worker
from mosec.errors import DecodingError

ORJSON = os.environ["BENCH_JSON"] == "orjson"


class Bench(Worker):
    """JSON by Mosec's base class."""

    def __init__(self) -> None:
        super().__init__()
        self._model = Model()

    def forward(self, data: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """A batch of parsed bodies."""
        outputs = self._model.run([row(body) for body in data])
        return [{"predictions": [out]} for out in outputs.tolist()]


class BenchOrjson(Bench):
    """JSON by orjson, straight from NumPy."""

    def deserialize(self, data: bytes) -> object:
        """One body; what is none is refused as the base class does."""
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise DecodingError from error

    def forward(self, data: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """A batch of parsed bodies."""
        outputs = self._model.run([row(body) for body in data])
        return [{"predictions": out[None]} for out in outputs]

    def serialize(self, data: object) -> bytes:
        """One answer."""
        return orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY)


class BenchRaw(Bench):
    """Float32 bytes."""

    def deserialize(self, data: bytes) -> Array:
        """One body."""
        return row_of_bytes(data)

    def forward(self, data: list[Array]) -> list[Array]:
        """A batch of rows."""
        return list(self._model.run(data))

    def serialize(self, data: Array) -> bytes:
        """One answer."""
        return data.tobytes()


if __name__ == "__main__":
    server = Server()
    kind = BenchRaw if RAW else BenchOrjson if ORJSON else Bench
    server.append_worker(kind, num=1, max_batch_size=BATCH_MAX)  # the window comes as --wait
    server.run()
