"""The model as a Ray Serve deployment with one replica, ``serve.batch``, and orjson."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import ray
from model import BATCH_MAX, RAW, WAIT_S, Array, Model, row, row_of_bytes
from ray import serve
from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.requests import Request

MOST_ONGOING = 10_000  # the default of 5 would be too few for a batch


@serve.deployment(max_ongoing_requests=MOST_ONGOING, ray_actor_options={"num_cpus": 1})
class Bench:
    """Deployment that batches single requests."""

    def __init__(self) -> None:
        self._model = Model()

    @serve.batch(max_batch_size=BATCH_MAX, batch_wait_timeout_s=WAIT_S)
    async def predict(self, rows: list[Array]) -> list[Array]:
        """Return the predictions for a batch of rows."""
        return list(self._model.run(rows))

    async def __call__(self, request: Request) -> Response:
        """Handle one request."""
        body = await request.body()
        if RAW:
            output = await self.predict(row_of_bytes(body))
            return Response(output.tobytes(), media_type="application/octet-stream")
        output = await self.predict(row(orjson.loads(body)))
        answer: dict[str, Any] = {"predictions": output[None]}
        return Response(
            orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json"
        )


if __name__ == "__main__":
    ray.init(
        num_cpus=2,
        _node_ip_address="127.0.0.1",
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=128 << 20,
        _temp_dir=str(Path.cwd() / "ray"),
    )
    serve.start(http_options={"host": "127.0.0.1", "port": int(os.environ["BENCH_PROXY_PORT"])})
    serve.run(
        Bench.bind(), blocking=True, logging_config={"enable_access_log": False}, route_prefix="/"
    )
