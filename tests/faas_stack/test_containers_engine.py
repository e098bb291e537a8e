"""The engine's adapter against a socket that answers as an engine does, at the test's word."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import TYPE_CHECKING

import pytest

from carpool.errors import Overloaded
from faas_stack.provider.local.containers.engine import Engine
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

LINE = b"2026-01-01T00:00:00Z hello\n"
FRAME = struct.pack(">BxxxL", 1, len(LINE)) + LINE


class Socket(ThreadingMixIn, UnixStreamServer):
    """Where an engine listens whose one container never stops printing.

    Attributes:
        asked: set once its log is asked for.
        gate: what an answer with the log waits for.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), Answer)
        self.asked, self.gate = threading.Event(), threading.Event()


class Answer(BaseHTTPRequestHandler):
    """What such an engine answers."""

    protocol_version = "HTTP/1.1"
    server: Socket

    def do_GET(self) -> None:
        """The version, the container, or its log."""
        if self.path.endswith("/version"):
            self._document({"ApiVersion": "1.41"})
        elif self.path.endswith("/json"):
            self._document({"Config": {"Tty": False}})
        else:
            self._log()

    def _document(self, shown: object) -> None:
        body = json.dumps(shown).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _log(self) -> None:
        self.server.asked.set()
        self.server.gate.wait(HANG_S)
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        with contextlib.suppress(OSError):  # the other side's end
            while True:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(FRAME), FRAME))

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Socket]:
    """Where the environment says that an engine is."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/engine.sock")
    with Socket(tmp_path / "engine.sock") as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.gate.set()
        server.shutdown()
        thread.join(HANG_S)


def sockets() -> set[str]:
    """The sockets this process has open."""
    shown = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            shown.add(str(entry.readlink()))
    return {name for name in shown if name.startswith("socket:")}


@pytest.mark.parametrize("printed", [False, True], ids=["not yet answered", "has printed"])
@pytest.mark.usefixtures("no_collector")
def test_a_log_that_is_not_followed_any_more_leaves_no_socket(
    engine: Socket, *, printed: bool
) -> None:
    """Whenever that is: no later garbage collection has to find it."""
    before = sockets()

    async def follow() -> None:
        connected, heard = await Engine.connect(), asyncio.Event()
        following = asyncio.create_task(connected.follow("fn", 0, lambda _: heard.set()))
        await asyncio.to_thread(engine.asked.wait, HANG_S)
        if printed:
            engine.gate.set()
            await heard.wait()
        following.cancel()
        await asyncio.wait([following])
        assert following.cancelled()
        engine.gate.set()
        connected.close()

    asyncio.run(follow())
    wait_until(lambda: sockets() <= before, what="the end of all sockets")


@pytest.mark.usefixtures("engine", "no_collector")
def test_an_engine_that_is_away_leaves_no_socket(tmp_path: Path) -> None:
    """Neither once it has gone nor where none has been."""
    before = sockets()

    async def ask() -> None:
        connected = await Engine.connect()
        (tmp_path / "engine.sock").rename(tmp_path / "away.sock")
        for _ in range(3):
            with pytest.raises(Overloaded, match="does not answer"):
                await connected.find("fn")
            with pytest.raises(Overloaded, match="no Docker Engine answers"):
                await Engine.connect()
        connected.close()

    asyncio.run(ask())
    wait_until(lambda: sockets() <= before, what="the end of all sockets")
