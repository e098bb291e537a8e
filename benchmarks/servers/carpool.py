"""Carpool: the sidecar, and the handler process that it starts."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.cases import RAW, V1
from benchmarks.servers.openfaas import GATEWAY_PORT, gateway, no_gateway
from benchmarks.servers.recipe import Launch, Server, no_wait
from carpool import durations

if TYPE_CHECKING:
    from benchmarks.servers.recipe import Setup

__all__ = [
    "CARPOOL",
    "CARPOOL_GATEWAY",
    "CARPOOL_PROVIDER",
    "CARPOOL_REPLICAS",
    "CARPOOL_WATCHDOG",
]

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
    env = {
        "PYTHONPATH": str(_ROOT),
        "fprocess": f"{setup.python} -m watchdog_plugin",
        "function_dir": str(_function(setup)),
        "sidecar_listen": f"127.0.0.1:{setup.port}",
        "sidecar_watchdog": watchdog,
        **_settings(setup),
    }
    return Launch([str(setup.python), "-m", "sidecar"], "/", _form(setup), env)


def _behind_provider(setup: Setup, replicas: int = 1) -> Launch:
    function = {
        "lang": "python3-batch" if setup.case.handler else "python3-onnx-batch",
        "handler": str(_function(setup)),
        "image": "f",
        "environment": _settings(setup),
        "labels": {"com.carpool.scale.min": str(replicas)},
    }
    stack = {"version": 1.0, "provider": {"name": "openfaas"}, "functions": {"f": function}}
    path = setup.scratch / "stack.yaml"
    path.write_text(json.dumps(stack))
    argv = [str(setup.python), "-m", "carpool", "up", "--no-watchdog", "--partition", "off"]
    argv += ["-f", str(path), "--port", str(setup.port)]
    env = {"PYTHONPATH": str(_ROOT)}
    return Launch(argv, "/function/f/", _form(setup), env, "/function/f/metrics")


def _behind_gateway(setup: Setup) -> Launch:
    behind = _behind_provider(setup)
    argv = [*behind.argv, "--no-auth"]
    return dataclasses.replace(behind, argv=gateway(setup, argv), port=GATEWAY_PORT)


def _function(setup: Setup) -> Path:
    """Write the function's folder as its author would, and return it."""
    folder = setup.scratch / "function"
    folder.mkdir(exist_ok=True)
    if setup.case.handler:
        (folder / "handler.py").write_text(setup.case.handler)
    elif setup.case.raw:
        (folder / "handler.py").write_text(_RAW_HANDLER.format(shape=setup.case.shape))
    return folder


def _settings(setup: Setup) -> dict[str, str]:
    model = {} if setup.case.handler else {"model_path": str(setup.case.model_path)}
    return {
        **model,
        "carpool_slo": durations.format(setup.case.slo_s),
        "carpool_batch_max": str(setup.case.batch_max),
        "carpool_shed": setup.shed,
        "handler_threads": "1",
    }


def _form(setup: Setup) -> str:
    return RAW if setup.case.raw else V1


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

CARPOOL_PROVIDER = Server(
    name="carpool-provider",
    venv="",
    packages=_PACKAGES,
    launch=_behind_provider,
    parses=CARPOOL.parses
    + "; the provider in front of the sidecar, as `carpool up --partition off` starts them",
    waits_ms=no_wait,
)

CARPOOL_REPLICAS = dataclasses.replace(
    CARPOOL_PROVIDER,
    name="carpool-replicas",
    launch=lambda setup: _behind_provider(setup, replicas=3),
    parses=CARPOOL_PROVIDER.parses + "; three replicas",
)

CARPOOL_GATEWAY = dataclasses.replace(
    CARPOOL_PROVIDER,
    name="carpool-gateway",
    launch=_behind_gateway,
    parses=CARPOOL_PROVIDER.parses + "; OpenFaaS's own gateway in front of it",
    refuses=no_gateway,
)
