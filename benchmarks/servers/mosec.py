"""Mosec, with the JSON of its base class and with orjson."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.cases import RAW, V1
from benchmarks.servers.recipe import Launch, Server, app

if TYPE_CHECKING:
    from benchmarks.servers.recipe import Setup

__all__ = ["MOSEC", "MOSEC_ORJSON"]

_PACKAGES = ("mosec", "orjson")


def _launch(setup: Setup, json: str) -> Launch:
    argv = [
        *app(setup, "mosec_app.py"),
        *("--address", "127.0.0.1", "--port", str(setup.port), "--log-level", "warning"),
        *("--wait", f"{setup.wait_ms:.0f}"),
    ]
    return Launch(argv, "/inference", RAW if setup.case.raw else V1, {"BENCH_JSON": json})


MOSEC = Server(
    name="mosec",
    venv="mosec",
    packages=_PACKAGES,
    launch=lambda setup: _launch(setup, "json"),
    parses='{"instances": [[...]]} by the standard json, as its base class does',
    refuses=lambda case: "no JSON in raw bodies: see mosec-orjson" if case.raw else "",
)

MOSEC_ORJSON = Server(
    name="mosec-orjson",
    venv="mosec",
    packages=_PACKAGES,
    launch=lambda setup: _launch(setup, "orjson"),
    parses='{"instances": [[...]]} by orjson, written from NumPy by orjson; or float32 bytes',
)
