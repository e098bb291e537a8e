"""A real handler process for tests, and a client that speaks to it as a sidecar does."""

from __future__ import annotations

import contextlib
import http.client
import math
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from carpool import wire
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["HEAD", "ROOT", "Answered", "Client", "Handler", "batch_body", "start"]

ROOT = Path(__file__).resolve().parents[2]
HEAD = wire.build_head("POST /", [("content-type", "application/json")])


class Answered(NamedTuple):
    """Response to one item of a batch."""

    status: int
    head: wire.Head
    body: bytes


class Reply(NamedTuple):
    """One HTTP response."""

    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    """One keep-alive connection to ``address``."""

    def __init__(self, address: str, timeout_s: float = 20.0) -> None:
        if address.startswith("unix:"):
            self._http = http.client.HTTPConnection("localhost", timeout=timeout_s)
            self._http.sock = sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(timeout_s)
            try:
                sock.connect(address.removeprefix("unix:"))
            except OSError:
                sock.close()
                raise
        else:
            self._http = http.client.HTTPConnection(address, timeout=timeout_s)
            self._http.connect()

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        chunked = body is not None and not isinstance(body, bytes)
        self._http.request(method, path, body, names, encode_chunked=chunked)
        response = self._http.getresponse()
        pairs = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, pairs, response.read())

    def batch(self, bodies: Sequence[bytes], head: bytes = HEAD) -> list[Answered]:
        """Post one batch of ``bodies`` and return the response to each item."""
        reply = self.post_batch(bodies, head)
        assert 200 == reply.status, reply.body
        ids, statuses, heads, answers = wire.decode_answer(reply.body)
        assert tuple(range(len(bodies))) == ids
        columns = zip(statuses, map(wire.parse_head, heads), map(bytes, answers), strict=True)
        return [Answered(*row) for row in columns]

    def post_batch(self, bodies: Sequence[bytes], head: bytes = HEAD) -> Reply:
        """Post one batch of ``bodies`` and return the raw response."""
        return self.request("POST", "/", batch_body(bodies, head), content_type=wire.CONTENT_TYPE)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def batch_body(bodies: Sequence[bytes], head: bytes = HEAD) -> bytes:
    """Return the message that carries ``bodies``."""
    count = len(bodies)
    return wire.encode_request(range(count), [math.inf] * count, [head] * count, bodies)


class Handler:
    """A running handler process."""

    def __init__(self, process: subprocess.Popen[bytes], address: str, log: Path) -> None:
        self.process = process
        self.address = address
        self._log = log

    @property
    def log(self) -> str:
        """Text that the process has written to stdout and stderr so far."""
        return self._log.read_text(errors="replace")

    def connect(self) -> Client:
        return Client(self.address)

    def probe(self, path: str = "/_/ready") -> int:
        """Return the status of a probe, or 0 if nothing listens yet."""
        with contextlib.suppress(OSError), self.connect() as client:
            return client.request("GET", path).status
        return 0

    def wait_ready(self, timeout_s: float = 30.0) -> Self:
        def ready() -> bool:
            assert self.process.poll() is None, self.log
            return self.probe() == 200

        wait_until(ready, timeout_s, "the handler's readiness")
        return self

    def wait_log(self, text: str) -> None:
        wait_until(lambda: text in self.log, what=f"{text!r} in the log")

    def exit_code(self, timeout_s: float = 20.0) -> int:
        return self.process.wait(timeout_s)


@contextlib.contextmanager
def start(
    folder: Path, *arguments: str, address: str = "", **environment: str
) -> Iterator[Handler]:
    """Run ``python -m watchdog_plugin`` in ``folder``, by default on a Unix socket."""
    address = address or f"unix:{folder / 'handler.sock'}"
    log = folder / "handler.log"
    settings = {"handler_listen": address, **environment}
    base = {k: v for k, v in os.environ.items() if not k.startswith(("carpool_", "handler_"))}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "watchdog_plugin", *arguments],
            cwd=folder,
            env={**base, "PYTHONPATH": str(ROOT), **settings},
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
        )
    try:
        yield Handler(process, address, log)
    finally:
        process.kill()
        process.wait()
