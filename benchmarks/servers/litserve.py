"""LitServe: one worker, with its own batching."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.cases import RAW, V1
from benchmarks.servers.recipe import Launch, Server, app

if TYPE_CHECKING:
    from benchmarks.servers.recipe import Setup

__all__ = ["LITSERVE"]


def _launch(setup: Setup) -> Launch:
    return Launch(app(setup, "litserve_app.py"), "/predict", RAW if setup.case.raw else V1)


LITSERVE = Server(
    name="litserve",
    venv="litserve",
    packages=("litserve",),
    launch=_launch,
    waits_ms=lambda _: (2.0, 0.0, 1.0, 5.0),  # without a wait it hardly batches
    start_share=0.2,
    parses='{"instances": [[...]]} by FastAPI (standard json); or float32 bytes',
)
