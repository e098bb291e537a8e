"""A typical Flask app under gunicorn: one process, alone or with Carpool in front."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.cases import V1
from benchmarks.servers.merged import in_front_of
from benchmarks.servers.recipe import APPS, Launch, Server, no_wait

if TYPE_CHECKING:
    from benchmarks.servers.recipe import Setup

__all__ = ["CARPOOL_FLASK", "FLASK"]


def _launch(setup: Setup) -> Launch:
    bind = f"127.0.0.1:{setup.port}"
    argv = [str(setup.python), "-m", "gunicorn", "--bind", bind, "--worker-class", "gthread"]
    argv += ["--threads", "4", "--keep-alive", "75", "flask_app:app"]
    return Launch(argv, "/", V1, {"PYTHONPATH": str(APPS)})


FLASK = Server(
    name="flask",
    venv="flask",
    packages=("flask", "gunicorn"),
    launch=_launch,
    parses='v1 {"instances": [[...]]} by the standard json',
    batches=False,
    waits_ms=no_wait,
    start_share=0.3,
    refuses=lambda case: "its app takes no raw tensors" if case.raw else "",
)

CARPOOL_FLASK = in_front_of(FLASK, "v1", _launch)
