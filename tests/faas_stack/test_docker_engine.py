"""Tests of the engine's adapter with a socket that responds like an engine when told to."""

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
from faas_stack.provider.local.containers import docker_engine as engine_module
from faas_stack.provider.local.containers.docker_engine import DockerEngine, EngineError
from faas_stack.provider.storage import NoSpace
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LINE = b"2026-01-01T00:00:00Z hello\n"
FRAME = struct.pack(">BxxxL", 1, len(LINE)) + LINE


class Socket(ThreadingMixIn, UnixStreamServer):
    """Socket of an engine whose only container never stops printing, and that has no images.

    Attributes:
        asked: Set once the log is requested.
        gate: The response with the log waits for it.
        pull: Progress of each pull.
        left: Set once a client has closed its connection during a pull.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), Answer)
        self.asked, self.gate, self.left = (threading.Event() for _ in range(3))
        self.pull: Iterable[dict[str, str]] = ()


class Answer(BaseHTTPRequestHandler):
    """Handler of requests to the engine."""

    protocol_version = "HTTP/1.1"
    server: Socket

    def do_GET(self) -> None:
        """Send the version, the container or its log; there are no images."""
        if self.path.endswith("/version"):
            self._document({"ApiVersion": "1.41"})
        elif "/images/" in self.path:
            self._document({"message": "No such image"}, 404)
        elif self.path.endswith("/json"):
            self._document({"Config": {"Tty": False}})
        else:
            self._log()

    def do_POST(self) -> None:
        """Send the progress of a pull, with status 200 even if it fails."""
        self._begin_chunks()
        try:
            for progress in self.server.pull:
                self._chunk(json.dumps(progress).encode())
            self._chunk(b"")
        except OSError:
            self.server.left.set()

    def _document(self, shown: object, status: int = 200) -> None:
        body = json.dumps(shown).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _log(self) -> None:
        self.server.asked.set()
        self.server.gate.wait(HANG_S)
        self._begin_chunks()
        with contextlib.suppress(OSError):  # the other side's end
            while True:
                self._chunk(FRAME)

    def _begin_chunks(self) -> None:
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.close_connection = True

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Socket]:
    """An engine at the address in the environment."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/engine.sock")
    with Socket(tmp_path / "engine.sock") as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.gate.set()
        server.shutdown()
        thread.join(HANG_S)


def sockets() -> set[str]:
    """Return the open sockets of this process."""
    shown = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            shown.add(str(entry.readlink()))
    return {name for name in shown if name.startswith("socket:")}


def downloading(gate: threading.Event) -> Iterator[dict[str, str]]:
    """Yield the progress of a pull that does not end before the gate is open."""
    while not gate.wait(0.01):
        yield {"status": "Downloading"}


@pytest.mark.parametrize("printed", [False, True], ids=["not yet answered", "has printed"])
@pytest.mark.usefixtures("no_collector")
def test_cancelled_log_leaves_no_socket(engine: Socket, *, printed: bool) -> None:
    """A cancelled log leaves no socket open for the garbage collector, at whatever point."""
    before = sockets()

    async def follow() -> None:
        connected, heard = await DockerEngine.connect(), asyncio.Event()
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
def test_missing_engine_leaves_no_socket(tmp_path: Path) -> None:
    """No socket stays open if the engine has gone or was never there."""
    before = sockets()

    async def ask() -> None:
        connected = await DockerEngine.connect()
        (tmp_path / "engine.sock").rename(tmp_path / "away.sock")
        for _ in range(3):
            with pytest.raises(Overloaded, match="does not answer"):
                await connected.find("fn")
            with pytest.raises(Overloaded, match="no Docker Engine answers"):
                await DockerEngine.connect()
        connected.close()

    asyncio.run(ask())
    wait_until(lambda: sockets() <= before, what="the end of all sockets")


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("write /var/lib/docker/x: no space left on device", NoSpace),
        ("filesystem layer verification failed", EngineError),
    ],
)
def test_pull_that_fails_after_it_began_raises_its_own_error(
    engine: Socket, said: str, error: type[Exception]
) -> None:
    """An error within a successful response is that of the pull, not a later "No such image"."""
    engine.pull = [{"status": "Downloading"}, {"error": said}]

    async def pull() -> None:
        connected = await DockerEngine.connect()
        with pytest.raises(error, match=said):
            await connected.fetch("example/fn:1")
        engine.pull = [{"status": "Downloading"}, {"status": "Downloaded"}]
        await connected.fetch("example/fn:1")
        connected.close()

    asyncio.run(pull())


def test_pull_that_takes_too_long_is_given_up(
    engine: Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pull beyond the time limit is an error of the image, and its connection is closed."""
    monkeypatch.setattr(engine_module, "_PULL_TIMEOUT_S", 0.05)
    engine.pull = downloading(engine.gate)

    async def pull() -> None:
        connected = await DockerEngine.connect()
        with pytest.raises(EngineError, match=r"not pulled within 0\.05 s"):
            await connected.fetch("example/fn:1")
        assert await asyncio.to_thread(engine.left.wait, HANG_S)
        connected.close()

    asyncio.run(pull())
