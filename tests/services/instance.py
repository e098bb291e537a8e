"""A substitute for a function's entry command: serves on ``$sidecar_listen``, drains on SIGTERM.

Its environment (``ready_after``, ``die_after``, ``spawn``, ``deaf``, ``repeatable``) and the path
of each request set its behaviour. On SIGUSR1 it becomes ready at once. With the argument ``alone``
it accepts no calls in bundles.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path
from urllib.parse import parse_qs

from carpool import wire
from carpool.http import call_frames, call_server
from carpool.http.server import Exchange, serve
from carpool.process import ready_notice

ALONE = "alone" in sys.argv[1:]
CHILD = [sys.executable, "-S", "-c", "import signal; signal.pause()"]


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Instance:
    """Answers requests as the tests require."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.began = self.loop.time()
        self.ready_after_s = float(os.environ.get("ready_after", "0"))
        self.draining = False
        self.refused = 0
        self.streamed: Exchange | None = None

    def __call__(self, exchange: Exchange) -> None:
        if exchange.path == call_frames.PATH and not ALONE:
            call_server.accept(exchange)
        else:
            self.answer(exchange)

    def answer(self, exchange: Exchange) -> None:
        query = parse_qs(exchange.query)
        if exchange.path == "/_/ready":
            self.tell_whether_ready(exchange)
        elif exchange.path == "/slow":
            self.loop.call_later(float(query["s"][0]), self.echo, exchange)
        elif exchange.path == "/hang":
            exchange.on_gone = lambda: say("the client left")
            say("hanging")
        elif exchange.path == "/print":
            say(exchange.body.decode())
            exchange.reply(200)
        elif exchange.path == "/eat":
            exchange.reply(200, str(len(bytearray(int(query["bytes"][0])))).encode())
        elif exchange.path in ("/events", "/last-event"):
            self.stream(exchange)
        elif exchange.path == "/refuse" and self.refused < int(query["times"][0]):
            self.refused += 1
            exchange.reply(503, b"not now", "text/plain", [("x-carpool-not-begun", "true")])
        elif exchange.path == "/plain":
            exchange.reply(301, b"moved", "", [("location", "/elsewhere"), ("x-own", "1")])
        elif exchange.path in ("/break", "/close"):
            self.leave_unanswered(exchange)
        else:
            self.echo(exchange)

    def leave_unanswered(self, exchange: Exchange) -> None:
        say("closing")
        exchange.abort()
        if exchange.path == "/break":
            os._exit(9)  # the first process of a container cannot kill itself

    def get_ready(self) -> None:
        self.ready_after_s = 0.0

    def tell_whether_ready(self, exchange: Exchange) -> None:
        waiting = self.loop.time() - self.began < self.ready_after_s
        reason = "draining" if self.draining else "loading" if waiting else ""
        headers = [("x-carpool-repeatable", "true")] if os.environ.get("repeatable") else []
        if not ALONE:
            headers.append((wire.CALLS_HEADER, "true"))
        exchange.reply(503 if reason else 200, (reason or "OK").encode(), "text/plain", headers)

    def echo(self, exchange: Exchange) -> None:
        headers = [[name.decode(), value.decode()] for name, value in exchange.headers]
        document = {
            "instance": f"{socket.gethostname()}:{os.getpid()}",
            "secrets": {path.name: path.read_text() for path in self.secret_files()},
            "method": exchange.method,
            "target": exchange.target,
            "headers": headers,
            "body": exchange.body.decode("latin-1"),
            "env": dict(os.environ),
            "cwd": str(Path.cwd()),
        }
        exchange.reply(200, json.dumps(document).encode())

    def secret_files(self) -> list[Path]:
        folder = Path(os.environ.get("secret_mount_path", "/nowhere"))
        return sorted(p for p in folder.iterdir() if p.is_file()) if folder.is_dir() else []

    def stream(self, exchange: Exchange) -> None:
        if exchange.path == "/events":
            exchange.start(200, [("content-type", "text/event-stream")])
            exchange.write(b"data: 1\n\n")
            self.streamed = exchange
        elif self.streamed:
            self.streamed.write(b"data: 2\n\n")
            self.streamed.end()
            exchange.reply(200)


async def main() -> int:
    """Serve until SIGTERM, or exit as the environment says."""
    if os.environ.get("spawn"):
        child = await asyncio.create_subprocess_exec(*CHILD, start_new_session=True)
        say(f"child {child.pid}")
    if os.environ.get("refuse"):
        say("I do not want to start")
        return 3
    if os.environ.get("watchdog_port"):  # as of-watchdog: one port that nothing can change
        await serve(lambda exchange: exchange.reply(200), listen="127.0.0.1:8081")
    instance = Instance()
    server = await serve(instance, listen=os.environ["sidecar_listen"])
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, instance.get_ready)
    ready_notice.tell()  # which is a hint alone: it may not be ready yet
    stop = asyncio.Event()
    if os.environ.get("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    instance.draining = True
    server.close()
    await server.drain(5)
    await server.stop()
    return 0


sys.exit(asyncio.run(main()))
