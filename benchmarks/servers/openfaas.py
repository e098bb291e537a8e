"""The current OpenFaaS Python template: Flask behind waitress with four threads, no batching."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from benchmarks.cases import RAW, V1
from benchmarks.servers.recipe import Launch, Server, app, no_wait

if TYPE_CHECKING:
    from benchmarks.servers.recipe import Setup

__all__ = ["OPENFAAS", "OPENFAAS_WATCHDOG"]

_PACKAGES = ("flask", "waitress")


def _launch(setup: Setup) -> Launch:
    return Launch(app(setup, "openfaas_app.py"), "/", RAW if setup.case.raw else V1)


def _behind_watchdog(setup: Setup) -> Launch:
    plain = _launch(setup)
    upstream = setup.port + 1
    env = {
        "mode": "http",
        "port": str(setup.port),
        "upstream_url": f"http://127.0.0.1:{upstream}",
        "fprocess": " ".join(plain.argv),
        "BENCH_PORT": str(upstream),
    }
    return Launch(["fwatchdog"], "/", plain.data, env)


OPENFAAS = Server(
    name="openfaas-template",
    venv="openfaas",
    packages=_PACKAGES,
    launch=_launch,
    parses='{"instances": [[...]]} by the standard json; or float32 bytes; without of-watchdog',
    batches=False,
    waits_ms=no_wait,
    start_share=0.3,
)

OPENFAAS_WATCHDOG = Server(
    name="openfaas-template-watchdog",
    venv="openfaas",
    packages=_PACKAGES,
    launch=_behind_watchdog,
    parses='{"instances": [[...]]} by the standard json; or float32 bytes; behind of-watchdog',
    batches=False,
    waits_ms=no_wait,
    start_share=0.3,
    refuses=lambda _: "" if shutil.which("fwatchdog") else "fwatchdog is not on the PATH",
)
