"""A handler process behind a real sidecar; the body of each item sets its behaviour.

``slow:0.2`` sleeps, ``wait:PATH`` waits until it gets the lock of that file, ``hang``
never answers its batch, ``crash`` exits, ``fail`` fails the whole batch, ``bad`` fails alone with
422, ``short`` answers too few items, ``garbage`` answers with bytes that are no batch,
``badhead`` has a malformed head, ``head:X`` one with the line ``X``, ``status:N`` that status,
``big:N`` a body of that many bytes; anything else is echoed.
``start_gate`` in the environment names a file whose lock the start waits for, and ``start_exit``
makes the start fail.
"""

from __future__ import annotations

import fcntl
import os
import socketserver
import sys
import threading
from pathlib import Path
from typing import Any

from carpool import wire

OK = wire.build_head("", [("content-type", "text/plain")])
LOCK = threading.Lock()


class Handler(socketserver.StreamRequestHandler):
    """A connection with batches and readiness probes in turn."""

    def handle(self) -> None:
        while line := self.rfile.readline():
            size = 0
            while header := self.rfile.readline().strip():
                name, _, value = header.partition(b":")
                if name.lower() == b"content-length":
                    size = int(value)
            body = self.rfile.read(size)
            status, answer = (200, b"OK") if line.startswith(b"GET ") else self.batch(body)
            head = f"HTTP/1.1 {status} X\r\ncontent-length: {len(answer)}\r\n\r\n"
            self.wfile.write(head.encode() + answer)

    def batch(self, body: bytes) -> tuple[int, bytes]:
        columns = wire.decode_request(body)
        words = [bytes(item).decode("latin-1") for item in columns.bodies]
        with LOCK:
            delays = [float(w.partition(":")[2]) for w in words if w.startswith("slow:")]
            threading.Event().wait(None if "hang" in words else max(delays, default=0.0))
            for word in words:
                if word.startswith("wait:"):
                    passed(word.partition(":")[2])
        if "crash" in words:
            os._exit(3)
        if "fail" in words:
            return 500, b"the whole batch failed"
        if "garbage" in words:
            return 200, b"not a batch"
        kept = slice(None, -1) if "short" in words else slice(None)
        made = [answer(word) for word in words[kept]]
        statuses, heads, bodies = ([each[part] for each in made] for part in range(3))
        return 200, wire.encode_answer(columns.ids[kept], statuses, heads, bodies)


def answer(word: str) -> tuple[Any, Any, Any]:
    """Return the status, head and body that a word asks for."""
    verb, _, rest = word.partition(":")
    if word == "bad":
        return 422, OK, b"bad"
    if word == "badhead":
        return 200, b"\nno colon\n", b""
    if verb == "head":
        return 200, b"\n" + rest.encode("latin-1") + b"\n", b"with a head"
    if verb == "status":
        return int(rest), OK, b""
    return 200, OK, b"x" * int(rest) if verb == "big" else word.encode("latin-1")


def passed(gate: str) -> None:
    """Wait until the lock of the file ``gate`` is free."""
    with Path(gate).open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)


class Server(socketserver.ThreadingUnixStreamServer):
    """Listens on the socket that the sidecar names."""

    daemon_threads = True


def main() -> None:
    """Start as the environment says."""
    if gate := os.environ.get("start_gate"):
        passed(gate)
    if "start_exit" in os.environ:
        sys.exit("model.onnx is not there: put it beside handler.py")
    path = os.environ["handler_listen"].removeprefix("unix:")
    Path(path).unlink(missing_ok=True)
    Server(path, Handler).serve_forever()


main()
