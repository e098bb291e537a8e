"""Carpool's sidecar in front of an unmodified server: the sidecar merges requests."""

from __future__ import annotations

import dataclasses
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.servers.recipe import Launch, Server, no_wait
from carpool import durations

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.servers.recipe import Setup

__all__ = ["in_front_of"]

_ROOT = Path(__file__).parent.parent.parent


def in_front_of(server: Server, wire: str, launch: Callable[[Setup], Launch]) -> Server:
    """Return the same server behind a sidecar.

    Args:
        server: as it is compared alone.
        wire: the form of its requests.
        launch: how it is started without its own batching.
    """
    return dataclasses.replace(
        server,
        name=f"carpool-{server.name}",
        launch=partial(_launch, wire, launch),
        parses=f"{server.parses}; Carpool's sidecar in front, which merges requests (`{wire}`)",
        batches=True,
        waits_ms=no_wait,
        start_share=1.0,
    )


def _launch(wire: str, launch: Callable[[Setup], Launch], setup: Setup) -> Launch:
    behind = dataclasses.replace(setup, port=setup.port + 1)
    plain = launch(behind)
    env = {
        **plain.env,
        "BENCH_PORT": str(behind.port),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(_ROOT), plain.env.get("PYTHONPATH")))),
        "fprocess": " ".join(plain.argv),
        "sidecar_listen": f"127.0.0.1:{setup.port}",
        "sidecar_handler_port": str(behind.port),
        "sidecar_watchdog": "off",
        "carpool_wire": wire,
        "carpool_slo": durations.format(setup.case.slo_s),
        "carpool_batch_max": str(setup.case.batch_max),
        "carpool_shed": "on",
    }
    return Launch([sys.executable, "-m", "sidecar"], plain.path, plain.data, env)
