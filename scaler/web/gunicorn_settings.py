"""How gunicorn is run beneath a scaler; its own name for each setting."""

from __future__ import annotations

import signal

from carpool.parent_death import tell_on_parent_death

workers = 1
threads = 8
worker_class = "gthread"
keepalive = 30  # seconds; the scaler asks on connections that it keeps
graceful_timeout = 2
loglevel = "warning"
control_socket_disable = True


def post_fork(_server: object, _worker: object) -> None:
    """A worker, which has nothing to lose, ends with the process that has started it."""
    tell_on_parent_death(signal.SIGKILL)
