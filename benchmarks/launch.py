"""Run one server process: start it, check its response, measure its usage, and stop it."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

import numpy as np

from benchmarks import usage
from benchmarks.one_request import exchange
from carpool.process.child import end
from carpool.process.parent_death import tell_on_parent_death

if TYPE_CHECKING:
    from benchmarks.servers.recipe import Server, Setup
    from benchmarks.usage import Usage

__all__ = ["DidNotStart", "Running", "free_port"]

_ROOT = Path(__file__).parent.parent
_START_S = 90.0
_STOP_S = 8.0
_POLL_S = 0.1
_SETTLE_S = 15.0
_OK = 200
_PORTS = range(18400, 19400, 4)  # a server may use the next three as well
_TAIL_BYTES = 400


class DidNotStart(Exception):
    """Raised when a server never responds correctly; the message quotes its last response."""


class Running:
    """A server that responds, as a context manager.

    Raises:
        DidNotStart: on entry, if it exits, does not respond in time, or responds wrongly.
    """

    def __init__(self, server: Server, setup: Setup) -> None:
        self._setup = setup
        self._case = setup.case
        self._launch = server.launch(setup)
        self._log: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        bodies = self._case.bodies(self._launch.data)
        self._body = bodies[0]
        self.port = self._launch.port or setup.port
        self.data = self._launch.data
        self.requests = [self.request(body) for body in bodies]

    def __enter__(self) -> Self:
        environment = {
            **os.environ,
            **self._setup.environment(),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            **self._launch.env,
        }
        path = self._setup.scratch / "log"
        self._log = path.open("wb")
        try:
            self._process = subprocess.Popen(
                self._launch.argv,
                env=environment,
                cwd=self._setup.scratch,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=partial(tell_on_parent_death, signal.SIGTERM),  # noqa: PLW1509 - there are no threads
            )
            self._await_right_answer(self._process)
        except OSError as error:
            self.__exit__()
            raise DidNotStart(str(error)) from error
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            end(self._process, signal.SIGTERM, grace_s=_STOP_S)
        if self._log:
            self._log.close()

    @property
    def pid(self) -> int:
        """ID of the process that was started."""
        assert self._process
        return self._process.pid

    @property
    def used(self) -> Usage:
        """Usage of all its processes so far."""
        assert self._process
        return usage.of_tree(self._process.pid)

    @property
    def own_cpu_s(self) -> float:
        """CPU seconds used by the process itself, without its children."""
        assert self._process
        return usage.cpu_s(self._process.pid)

    def request(self, body: bytes) -> bytes:
        """Return a complete request with ``body``."""
        head = (
            f"POST {self._launch.path} HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\n"
            f"content-type: {self._case.content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def batches(self) -> tuple[float, float] | None:
        """Return the numbers of batches and of requests in them so far, or None if unknown."""
        counts = self._setup.scratch / "counts"
        if counts.exists():
            runs, rows = np.fromfile(counts, np.int64).tolist()
            return float(runs), float(rows)
        status, text = self._exchange("GET", self._launch.metrics, b"")
        lines = [line.split() for line in text.decode("utf-8", "replace").splitlines()]
        values = {line[0]: float(line[1]) for line in lines if len(line) == 2}  # noqa: PLR2004
        if status != _OK or "batch_size_count" not in values:
            return None
        return values["batch_size_count"], values["batch_size_sum"]

    def mean_batch(self, before: tuple[float, float] | None) -> float | None:
        """Return the requests per batch since ``before``, or None if unknown."""
        after = self.batches()
        if before is None or after is None or after[0] <= before[0]:
            return None
        return round((after[1] - before[1]) / (after[0] - before[0]), 2)

    def settle(self) -> None:
        """Wait until a single request is answered quickly again."""
        deadline = time.monotonic() + _SETTLE_S
        quick_s = self._case.slo_s / 2
        while time.monotonic() < deadline:
            start_s = time.monotonic()
            with contextlib.suppress(OSError, http.client.HTTPException):
                status, _ = self._exchange("POST", self._launch.path, self._body)
                if status == _OK and time.monotonic() - start_s < quick_s:
                    return

    def _await_right_answer(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_S
        last = "nothing"
        while time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(_POLL_S)
                msg = f"it ended with {code}: {self._tail()}"
                raise DidNotStart(msg)
            try:
                status, answer = self._exchange("POST", self._launch.path, self._body)
            except (OSError, http.client.HTTPException) as error:
                last = str(error)
                continue
            if status == _OK:
                if not self._case.is_right(answer):
                    msg = f"its answer is wrong: {answer[:80]!r}"
                    raise DidNotStart(msg)
                return
            last = f"status {status}: {answer[:_TAIL_BYTES].decode('utf-8', 'replace')}"
        msg = f"no answer after {_START_S:g} s ({last}): {self._tail()}"
        raise DidNotStart(msg)

    def _exchange(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        address = "127.0.0.1", self.port
        return exchange(method, path, body, address, self._case.content_type)

    def _tail(self) -> str:
        text = (self._setup.scratch / "log").read_bytes()[-_TAIL_BYTES:]
        plain = text.decode("utf-8", "replace").replace(str(self._setup.scratch), ".")
        return " ".join(plain.replace(str(_ROOT), ".").split())


def free_port() -> int:
    """Return a port on which no process listens."""
    for port in _PORTS:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    msg = "no free port"
    raise DidNotStart(msg)
