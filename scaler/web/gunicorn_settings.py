"""Settings of the gunicorn that a scaler runs, under gunicorn's own names."""

from __future__ import annotations

import os
import shutil
import signal
from typing import Any

from carpool.process.parent_death import tell_on_parent_death

workers = 1
threads = 8
worker_class = "gthread"
keepalive = 30  # seconds; the scaler reuses connections
graceful_timeout = 2
loglevel = "warning"
control_socket_disable = True
_SCALER = os.getppid()


def post_fork(_server: object, _worker: object) -> None:
    """Let a worker, which has nothing to lose, end with the process that started it."""
    tell_on_parent_death(signal.SIGKILL)


def on_exit(server: Any) -> None:  # noqa: ANN401  gunicorn's own
    """Remove the folder if the scaler was killed; one that still runs needs it again."""
    if os.getppid() != _SCALER:
        shutil.rmtree(server.cfg.worker_tmp_dir, ignore_errors=True)
