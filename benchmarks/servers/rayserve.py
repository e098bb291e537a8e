"""Ray Serve: one replica with its own batching, throughput-optimised, called without its proxy.

Through the proxy it sustains a fraction of this. In its throughput mode a replica itself listens,
so that mode takes part.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from benchmarks.cases import RAW, V1
from benchmarks.servers.recipe import Launch, Server, app

if TYPE_CHECKING:
    from benchmarks.servers.recipe import Setup

__all__ = ["RAYSERVE"]


def _launch(setup: Setup) -> Launch:
    env = {
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(setup.port),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),  # else it leaves one in the home folder
        "BENCH_PROXY_PORT": str(setup.port + 1),
    }
    return Launch(app(setup, "rayserve_app.py"), "/", RAW if setup.case.raw else V1, env)


RAYSERVE = Server(
    name="rayserve",
    venv="rayserve",
    packages=("ray[serve]", "orjson"),
    launch=_launch,
    parses='{"instances": [[...]]} by orjson, written from NumPy by orjson; or float32 bytes; '
    "throughput-optimised, without its proxy",
)
