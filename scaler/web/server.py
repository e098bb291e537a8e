"""Runs gunicorn in its own process and restarts it, and forwards requests to it.

It listens on a Unix socket in a folder that only the scaler's user can enter, and ends with the
scaler, however that ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from carpool import errors
from carpool.errors import ConfigError, Problem
from carpool.http.client import AnswerTooLarge, ConnectionFailed, Pool
from carpool.process import exit_status
from carpool.process.child import ChildProcess, Command
from carpool.process.supervisor import Supervisor
from carpool.task_set import TaskSet
from scaler.web import gunicorn_settings

if TYPE_CHECKING:
    from carpool.http.client import Response
    from carpool.http.server import Exchange
    from scaler.web.publisher import Publisher

__all__ = ["Readers", "WebProcess", "socket_of"]

log = logging.getLogger(__name__)

_ROOT = str(Path(__file__).resolve().parents[2])
_IDLE_S = 0.7 * gunicorn_settings.keepalive
_IN_QUERIES = "%!$&'()*+,/:;=?@"
_PATIENCE_S = 10.0  # for a process that is starting
_AGAIN_S = 0.05
_GRACE_S = 5.0
_NOT_PASSED = frozenset(("connection", "content-length", "content-type", "date", "server"))


def socket_of(folder: Path) -> str:
    """Return the address at which the process of a folder listens."""
    return f"unix:{folder / 'http'}"


class WebProcess:
    """Keeps gunicorn running.

    Args:
        folder: Folder of the snapshot and the socket.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = ChildProcess()
        self._supervisor = Supervisor(self._run, self._process, self._on_end)
        self._started = asyncio.Event()

    @property
    def pid(self) -> int:
        """Process id of the running gunicorn; 0 if it does not run."""
        return self._process.pid

    async def start(self) -> None:
        """Start gunicorn, and restart it whenever it ends.

        Raises:
            ConfigError: It cannot be started at all.
        """
        await self._supervisor.start_until(self._started)

    async def stop(self) -> None:
        """Stop gunicorn gracefully, or kill it after a grace period."""
        await self._supervisor.stop(_GRACE_S)

    async def _run(self) -> str:
        """Run gunicorn once until it ends, and return the outcome."""
        try:
            await self._process.start(self._command())
        except OSError as error:
            if self._started.is_set():
                return "cannot be started"
            expected = f"a Python that can be started ({error.strerror or error})"
            raise ConfigError([Problem("python", sys.executable, expected)]) from error
        self._started.set()
        return f"ended with {exit_status.in_words(await self._process.ended())}"

    def _on_end(self, outcome: str, pause_s: float) -> None:
        log.warning("the read API's gunicorn %s; starting again in %g s", outcome, pause_s)

    def _command(self) -> Command:
        path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), _ROOT)))
        argv = (
            *(sys.executable, "-m", "gunicorn", f"scaler.web.app:create({str(self._folder)!r})"),
            *("--config", f"python:{gunicorn_settings.__name__}"),
            *("--bind", socket_of(self._folder), "--worker-tmp-dir", str(self._folder)),
        )
        env = {**os.environ, "PYTHONPATH": path}
        return Command(argv, env, parent_death=signal.SIGTERM)


class Readers:
    """Forwards read requests once there is a fresh snapshot.

    Args:
        address: Address at which the application listens.
        publisher: Keeps the snapshot fresh.
    """

    def __init__(self, address: str, publisher: Publisher) -> None:
        self._pool = Pool(address, idle_s=_IDLE_S)
        self._publisher = publisher
        self._tasks = TaskSet()

    def pass_on(self, exchange: Exchange, *, needs_snapshot: bool = True) -> None:
        """Reply with the application's response; headers of the request are not forwarded."""
        task = self._tasks.start(self._answer(exchange, needs_snapshot=needs_snapshot))
        exchange.on_gone = task.cancel

    def close(self) -> None:
        """Close all connections."""
        self._tasks.cancel()
        self._pool.close()

    async def _answer(self, exchange: Exchange, *, needs_snapshot: bool) -> None:
        target = quote(exchange.path)  # request exactly the path that was checked
        if exchange.query:
            target += f"?{quote(exchange.query, safe=_IN_QUERIES)}"
        try:
            if needs_snapshot:
                await self._publisher.fresh()
            async with asyncio.timeout(_PATIENCE_S):
                response = await self._asked(target)
        except (AnswerTooLarge, TimeoutError) as error:
            text = f"the read API does not answer ({type(error).__name__}); try again"
            exchange.reply(503, errors.body(text), headers=[("retry-after", "1")])
        except Exception:
            log.exception("a snapshot failed")
            exchange.reply(500, errors.body("internal error"))
        else:
            content_type = (response.header(b"content-type") or b"application/json").decode(
                "latin-1"
            )
            lines = ((k.decode("latin-1"), v.decode("latin-1")) for k, v in response.headers)
            own = [(name, value) for name, value in lines if name not in _NOT_PASSED]
            exchange.reply(response.status, response.body, content_type, own)

    async def _asked(self, target: str) -> Response:
        while True:  # requests only read, so they can be repeated
            try:
                return await self._pool.request("GET", target)
            except ConnectionFailed:
                await asyncio.sleep(_AGAIN_S)
