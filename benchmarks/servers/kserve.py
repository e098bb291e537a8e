"""KServe's Python server: a custom model in its one process, alone or with Carpool in front.

KServe's batcher is not part of this server, but of an agent beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.cases import OIP
from benchmarks.servers.merged import in_front_of
from benchmarks.servers.recipe import Launch, Server, app, no_wait

if TYPE_CHECKING:
    from benchmarks.servers.recipe import Setup

__all__ = ["CARPOOL_KSERVE", "KSERVE"]


def _launch(setup: Setup) -> Launch:
    return Launch(app(setup, "kserve_app.py"), "/v2/models/bench/infer", OIP)


KSERVE = Server(
    name="kserve",
    venv="kserve",
    packages=("kserve",),
    launch=_launch,
    parses="Open Inference Protocol JSON, by its own (orjson and pydantic)",
    batches=False,
    waits_ms=no_wait,
    start_share=0.3,
    refuses=lambda case: "its app takes no raw tensors" if case.raw else "",
)

CARPOOL_KSERVE = in_front_of(KSERVE, "oip", _launch)
