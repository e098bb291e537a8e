"""BentoML: one worker, with adaptive batching."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.cases import V1
from benchmarks.servers.recipe import APPS, Launch, Server

if TYPE_CHECKING:
    from benchmarks.cases import Case
    from benchmarks.servers.recipe import Setup

__all__ = ["BENTOML"]

_DEFAULT_LATENCY_MS = 60_000.0


def _launch(setup: Setup) -> Launch:
    argv = [
        *(str(setup.python), "-m", "bentoml", "serve", "bentoml_app:Bench"),
        *("--host", "127.0.0.1", "--port", str(setup.port)),
    ]
    env = {
        "PYTHONPATH": str(APPS),
        "BENTOML_HOME": str(setup.scratch / "bentoml"),
        "BENTOML_DO_NOT_TRACK": "True",
    }
    return Launch(argv, "/predict", V1, env)


def _latencies_ms(case: Case) -> tuple[float, ...]:
    """Return the latency limits to try, as BentoML finds its waiting time itself."""
    return (1e3 * case.slo_s, _DEFAULT_LATENCY_MS)


BENTOML = Server(
    name="bentoml",
    venv="bentoml",
    packages=("bentoml", "uvloop", "httptools"),  # its web server takes the two where it finds them
    launch=_launch,
    start_share=0.15,
    parses='{"instances": [[...]]} by its own (pydantic), answers with the bare rows',
    waits_ms=_latencies_ms,
    refuses=lambda case: "its batched endpoints take no raw tensors" if case.raw else "",
)
