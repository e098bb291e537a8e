"""Carpool: the sidecar, and the handler process that it starts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.cases import RAW, V1
from benchmarks.servers.recipe import Launch, Server, no_wait
from carpool import durations

if TYPE_CHECKING:
    from benchmarks.servers.recipe import Setup

__all__ = ["CARPOOL", "CARPOOL_WATCHDOG"]

_ROOT = Path(__file__).parent.parent.parent
_PACKAGES = ("httptools", "orjson", "uvloop")  # of the running environment, for the record
_RAW_HANDLER = '''"""Raw float32 in and out."""

import numpy as np


def preprocess(item):
    return np.frombuffer(item.body, np.float32).reshape({shape})


def postprocess(outputs):
    return next(iter(outputs.values())).tobytes()
'''


def _launch(setup: Setup, watchdog: str = "off") -> Launch:
    folder = setup.scratch / "function"
    folder.mkdir(exist_ok=True)
    if setup.case.raw:
        (folder / "handler.py").write_text(_RAW_HANDLER.format(shape=setup.case.shape))
    env = {
        "PYTHONPATH": str(_ROOT),
        "fprocess": f"{setup.python} -m watchdog_plugin",
        "function_dir": str(folder),
        "model_path": str(setup.case.model_path),
        "sidecar_listen": f"127.0.0.1:{setup.port}",
        "sidecar_watchdog": watchdog,
        "carpool_slo": durations.format(setup.case.slo_s),
        "carpool_batch_max": str(setup.case.batch_max),
        "carpool_shed": "on",  # what an objective is for: late ones are refused, not served late
        "carpool_cpu": "1",
    }
    return Launch([str(setup.python), "-m", "sidecar"], "/", RAW if setup.case.raw else V1, env)


CARPOOL = Server(
    name="carpool",
    venv="",
    packages=_PACKAGES,
    launch=_launch,
    parses='v1 {"instances": [[...]]} by orjson, checked against the model; or float32 bytes',
    waits_ms=no_wait,
)

CARPOOL_WATCHDOG = Server(
    name="carpool-watchdog",
    venv="",
    packages=_PACKAGES,
    launch=lambda setup: _launch(setup, "on"),
    parses=CARPOOL.parses + "; of-watchdog between sidecar and handler",
    waits_ms=no_wait,
    refuses=lambda _: "" if shutil.which("fwatchdog") else "fwatchdog is not on the PATH",
)
