"""MLServer: a custom runtime in its own process, with adaptive batching or Carpool in front."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.cases import OIP
from benchmarks.servers.merged import in_front_of
from benchmarks.servers.recipe import APPS, Launch, Server

if TYPE_CHECKING:
    from benchmarks.servers.recipe import Setup

__all__ = ["CARPOOL_MLSERVER", "MLSERVER"]


def _launch(setup: Setup, *, batches: bool = True) -> Launch:
    folder = setup.scratch / "mlserver"
    folder.mkdir(exist_ok=True)
    settings = {
        "http_port": setup.port,
        "grpc_port": setup.port + 1,
        "metrics_port": setup.port + 2,
        "host": "127.0.0.1",
        "parallel_workers": 0,  # the model runs in the server's process: one model process
        "debug": False,
        "logging_settings": {"version": 1, "loggers": {}, "root": {"level": "WARNING"}},
    }
    model = {
        "name": "bench",
        "implementation": "mlserver_app.Bench",
        "max_batch_size": setup.case.batch_max if batches else 0,
        "max_batch_time": setup.wait_ms / 1e3 or 1e-6 if batches else 0,  # 0 turns batching off
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "model-settings.json").write_text(json.dumps(model))
    argv = [str(setup.python.with_name("mlserver")), "start", str(folder)]
    return Launch(argv, "/v2/models/bench/infer", OIP, {"PYTHONPATH": str(APPS)})


MLSERVER = Server(
    name="mlserver",
    venv="mlserver",
    packages=("mlserver",),
    launch=_launch,
    start_share=0.3,
    parses="Open Inference Protocol JSON, by its own (orjson and pydantic)",
    refuses=lambda case: "its REST endpoint takes no raw tensors" if case.raw else "",
)

CARPOOL_MLSERVER = in_front_of(MLSERVER, "oip", partial(_launch, batches=False))
