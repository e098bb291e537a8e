"""OpenFaaS's own parts: its current Python template, and its gateway.

The template is Flask behind waitress with four threads, without batching.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from benchmarks.cases import RAW, V1
from benchmarks.servers.recipe import APPS, Launch, Server, app, no_wait

if TYPE_CHECKING:
    from benchmarks.cases import Case
    from benchmarks.servers.recipe import Setup

__all__ = [
    "GATEWAY_EMPTY",
    "GATEWAY_PORT",
    "OPENFAAS",
    "OPENFAAS_WATCHDOG",
    "gateway",
    "no_gateway",
]

GATEWAY_PORT = 8080  # it knows no other
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


def _empty_behind_gateway(setup: Setup) -> Launch:
    argv = gateway(setup, app(setup, "empty_upstream.py"))
    return Launch(argv, "/function/f", RAW if setup.case.raw else V1, port=GATEWAY_PORT)


def gateway(setup: Setup, provider: list[str]) -> list[str]:
    """Return the command that runs the gateway in front of ``provider``, which has the port."""
    return [str(setup.python), str(APPS / "openfaas_gateway.py"), str(setup.port), *provider]


def no_gateway(_: Case) -> str:
    """Return why the gateway cannot be started; empty if it can."""
    return "" if shutil.which("gateway") else "gateway is not on the PATH"


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

GATEWAY_EMPTY = Server(
    name="gateway-empty",
    venv="",
    packages=("httptools", "uvloop"),
    launch=_empty_behind_gateway,
    parses="nothing: OpenFaaS's gateway in front of a process that repeats stored responses",
    batches=False,
    waits_ms=no_wait,
    refuses=no_gateway,
)
