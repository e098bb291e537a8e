"""Fixtures that run a real sidecar process, scripted handlers and a client of the admin API."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from carpool.http.client import ConnectionFailed, Pool, Response
from faas_stack.provider.local import network_namespace
from tests.gate import Gate
from tests.waiting import HANG_S, wait_until, wait_until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
    from contextlib import AbstractAsyncContextManager

    Handlers = Callable[[str], str]
    T = TypeVar("T")
    Start = Callable[..., AbstractAsyncContextManager["Sidecar"]]

ROOT = Path(__file__).parents[3]
HANDLER = ROOT / "tests" / "services" / "scripted_handler.py"
_POLL_S = 0.01
EXPLAIN = ("x-carpool-explain", "1")


def on_loop(test: Callable[..., Coroutine[object, object, None]]) -> Callable[..., None]:
    """Run an asynchronous test on its own event loop."""

    @functools.wraps(test)
    def run(*args: object, **kwargs: object) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


@dataclass(slots=True)
class Sidecar:
    """Running sidecar: its process and a client."""

    process: subprocess.Popen[bytes]
    pool: Pool

    async def ask(self, body: str, *headers: tuple[str, str], target: str = "/") -> Response:
        """Send one request."""
        return await self.pool.request("POST", target, headers, body.encode(), HANG_S)

    async def ready(self) -> int:
        """Return the status of /_/ready, or 0 while nothing listens."""
        try:
            return (await self.pool.request("GET", "/_/ready", timeout_s=HANG_S)).status
        except ConnectionFailed:
            return 0

    def listening(self) -> bool:
        """Return whether the sidecar accepts connections, which its socket file does not prove."""
        return accepts(self.pool.address)

    async def until_ready(self) -> None:
        """Wait until the function is ready."""
        async with asyncio.timeout(HANG_S):
            while await self.ready() != 200:  # noqa: ASYNC110 - another process changes it
                await asyncio.sleep(_POLL_S)

    async def metric(self, name: str) -> float:
        """Return the value of one series of /metrics."""
        text = (await self.pool.request("GET", "/metrics")).body.decode()
        lines = [line for line in text.splitlines() if line.startswith(f"{name} ")]
        return float(lines[0].rpartition(" ")[2]) if lines else 0.0

    async def until_metric(self, name: str, least: float) -> None:
        """Wait until a series reaches ``least``."""
        async with asyncio.timeout(HANG_S):
            while await self.metric(name) < least:  # noqa: ASYNC110 - another process changes it
                await asyncio.sleep(_POLL_S)

    async def together(self, gate: Gate, *asked: Coroutine[Any, Any, T]) -> list[T]:
        """Return the results of requests that all wait before any of them reaches the handler."""
        gate.close()
        busy = asyncio.create_task(self.ask(gate.word))
        await self.until_metric("batch_in_flight", 1)
        answers = asyncio.gather(*asked)
        await self.until_metric("batch_queue_requests", len(asked))
        gate.open()
        assert 200 == (await busy).status
        return await answers

    def handler_pid(self) -> int:
        """Return the process ID of the handler."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return int(children.split()[0])


def accepts(address: str) -> bool:
    """Return whether a process listens on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(address.removeprefix("unix:")) == 0


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """Return a closed gate."""
    made = Gate(tmp_path / "gate")
    yield made
    made.remove()


def error(body: bytes) -> str:
    """Return the message of an error response."""
    text: str = json.loads(body)["error"]
    return text


@pytest.fixture
def sidecar(tmp_path: Path) -> Start:
    """Start a sidecar with the given environment; it is ready on entry unless told otherwise.

    An isolated sidecar has its own network namespace, as two watchdogs cannot share one.
    """

    @contextlib.asynccontextmanager
    async def start(
        *, ready: bool = True, isolated: bool = False, **env: str
    ) -> AsyncIterator[Sidecar]:
        listen = f"unix:{tmp_path}/sidecar.sock"
        command = (sys.executable, "-m", "sidecar")
        process = subprocess.Popen(  # noqa: ASYNC220 - returns at once
            network_namespace.command(command) if isolated else command,
            cwd=ROOT,
            env={
                **os.environ,
                "fprocess": f"{sys.executable} {HANDLER}",
                "PYTHONPATH": str(ROOT),
                "sidecar_listen": listen,
                "sidecar_watchdog": "off",
                "exec_timeout": f"{HANG_S:g}s",  # a busy machine may keep a handler waiting
                **env,
            },
        )
        running = Sidecar(process, Pool(listen, max_connections=256))
        try:
            if ready:
                await running.until_ready()
            yield running
        finally:
            running.pool.close()
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            await wait_until_async(lambda: process.poll() is not None, what="the sidecar's end")

    return start


@pytest.fixture
def handler(tmp_path: Path) -> Iterator[Handlers]:
    """Return a function that starts a named handler process and returns its address."""
    with contextlib.ExitStack() as running:

        def start(name: str) -> str:
            path = tmp_path / f"{name}.sock"
            env = {**os.environ, "PYTHONPATH": str(ROOT), "handler_listen": f"unix:{path}"}
            process = subprocess.Popen([sys.executable, HANDLER], env=env)
            running.callback(process.wait, HANG_S)
            running.callback(process.kill)
            wait_until(lambda: accepts(f"unix:{path}"), what=f"handler {name}")
            return f"unix:{path}"

        yield start


class AdminClient:
    """Client of the admin API."""

    def __init__(self, address: str, token: str = "") -> None:
        self.pool = Pool(address)
        self.headers = [("authorization", f"Bearer {token}")] if token else []

    async def put(self, plan: dict[str, Any], **instances: list[str]) -> Response:
        """Propose a plan."""
        body = {"plan": plan, **({"instances": instances} if instances else {})}
        return await self.pool.request(
            "PUT", "/v1/plan", self.headers, json.dumps(body).encode(), HANG_S
        )

    async def get(self, target: str) -> Any:
        """Return the JSON document at ``target``."""
        response = await self.pool.request("GET", target, self.headers, timeout_s=HANG_S)
        return json.loads(response.body)


@pytest.fixture
def admin(tmp_path: Path) -> AdminClient:
    """Return a client of the admin API of the sidecar under test."""
    return AdminClient(f"unix:{tmp_path}/admin.sock")
