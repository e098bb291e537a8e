"""A function's real handler process, called as a sidecar does: one POST per batch."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from carpool import wire
from carpool.errors import FunctionFault
from carpool.http.client import Pool, Response
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Answer", "Handler", "serving"]

ROOT = Path(__file__).resolve().parents[2]
READY_S = 30.0


class Answer(NamedTuple):
    """The answer to one item of a batch."""

    status: int
    body: bytes


class Handler:
    """A running handler, reached over its Unix socket."""

    def __init__(self, address: str, process: subprocess.Popen[bytes]) -> None:
        self._address = address
        self._process = process

    def batch(
        self, bodies: Sequence[bytes], content_type: str = "application/octet-stream"
    ) -> list[Answer]:
        """Send ``bodies`` as one batch and return the answers."""
        head = wire.build_head("POST /", [("content-type", content_type)])
        ids = range(1, len(bodies) + 1)
        message = wire.encode_request(
            ids, [math.inf] * len(bodies), [head] * len(bodies), list(bodies)
        )
        response = self._call("POST", "/", message)
        assert response.status == 200, response.body
        columns = wire.decode_answer(response.body)
        assert columns.ids == tuple(ids)
        pairs = zip(columns.statuses, columns.bodies, strict=True)
        return [Answer(status, bytes(body)) for status, body in pairs]

    def ready(self) -> bool:
        """Return whether it has loaded; fail the test if it has ended."""
        assert self._process.poll() is None, "the handler ended; see its output above"
        try:
            return self._call("GET", "/_/ready", b"").status == 200
        except FunctionFault:
            return False

    def _call(self, method: str, target: str, body: bytes) -> Response:
        async def call() -> Response:
            pool = Pool(self._address)
            try:
                kind = [("content-type", wire.CONTENT_TYPE)]
                return await pool.request(method, target, kind, body, timeout_s=HANG_S)
            finally:
                pool.close()

        return asyncio.run(call())


@contextmanager
def serving(function_dir: Path) -> Iterator[Handler]:
    """Yield the handler of the function in ``function_dir`` once it is ready."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{folder}/handler.sock"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("carpool_")}
        env = inherited | {
            "PYTHONPATH": str(ROOT),
            "handler_listen": address,
            "function_dir": str(function_dir),
            "carpool_cpu": "1",
        }
        command = [sys.executable, "-m", "watchdog_plugin"]
        with subprocess.Popen(command, env=env, cwd=folder) as process:
            try:
                handler = Handler(address, process)
                wait_until(handler.ready, READY_S, "the handler's readiness")
                yield handler
            finally:
                process.kill()
