"""The processes of a soak: one sidecar, and its handlers, which are killed and restarted.

Either the soak starts the handlers (`sidecar_upstreams`), or the sidecar starts its only handler
itself. This module knows nothing of the requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from carpool.http.client import ConnectionFailed, Pool
from tests.waiting import wait_until_async

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Mapping
    from random import Random

__all__ = ["Cluster"]

ROOT = Path(__file__).resolve().parents[2]
_HANDLER = [sys.executable, "-m", "watchdog_plugin"]
_SETTINGS = {
    "PYTHONPATH": str(ROOT),
    "function_dir": str(ROOT / "tests" / "soak" / "function"),
    "carpool_slo": "3m",  # only requests with a timeout may be late, however slow the machine
    "carpool_batch_max": "32",
    "sidecar_watchdog": "off",
    "MALLOC_MMAP_THRESHOLD_": "131072",  # released memory is seen to be released
}
_START_S = 120.0
_ASK_S = 60.0  # an operator's question, on a machine that others keep busy


class Handler:
    """A handler process at one address, restarted whenever it dies."""

    def __init__(self, address: str, log: Path) -> None:
        self.address = address
        self.deaths = 0
        self.pid = 0
        self._log = log

    async def keep(self) -> None:
        """Run the process until cancelled."""
        env = {**os.environ, **_SETTINGS, "handler_listen": self.address}
        with self._log.open("ab") as log:
            while True:
                process = await asyncio.create_subprocess_exec(*_HANDLER, env=env, stderr=log)
                self.pid = process.pid
                try:
                    await process.wait()
                finally:
                    self.pid = 0
                    if process.returncode is None:
                        process.kill()
                        await process.wait()
                self.deaths += 1


class Cluster:
    """A running sidecar with its handlers; ready on entry, ended on exit.

    Args:
        folder: Folder for sockets and logs.
        handlers: Number of handlers; 0: the sidecar starts its own.

    Attributes:
        address: The sidecar's address for requests.
        door: The sidecar's address for operators.
        kills: Number of handlers killed from outside.
        log: The sidecar's log file.
    """

    def __init__(self, folder: Path, handlers: int) -> None:
        self._folder = folder
        self.log = folder / "sidecar.log"
        self.handlers = [
            Handler(f"unix:{folder}/handler{number}.sock", folder / "handlers.log")
            for number in range(handlers)
        ]
        self.address = ""
        self.door = Pool(f"unix:{folder}/admin.sock")
        self.kills = 0
        self._keepers: list[asyncio.Task[None]] = []
        self._process: Process | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._keepers = [loop.create_task(handler.keep()) for handler in self.handlers]
        try:
            await self._start_sidecar()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        self.door.close()

    # -- the handlers -------------------------------------------------------------------------

    @property
    def deaths(self) -> int:
        """Number of handlers that have died, killed or because of a request."""
        if self.handlers:
            return sum(handler.deaths for handler in self.handlers)
        return self.said().count("the function's process ended")

    async def kill_one(self, rng: Random) -> None:
        """Send SIGKILL to a handler, whatever it is doing.

        The last one that is up is spared, as on a slow machine none would live long enough to
        serve. The sidecar's own may start first: a handler that dies three times before it has
        served is given up, as it should be.
        """
        pids = self._handler_pids()
        if pids and sum(await self._up()) >= min(2, len(pids)):
            self.kills += 1
            _send(rng.choice(pids), signal.SIGKILL)

    def signal_handlers(self, number: signal.Signals) -> None:
        """Send the signal ``number`` to all handlers."""
        for pid in self._handler_pids():
            _send(pid, number)

    def _handler_pids(self) -> list[int]:
        if self.handlers:
            return [handler.pid for handler in self.handlers if handler.pid]
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(pid) for pid in children.split()]

    # -- the sidecar --------------------------------------------------------------------------

    async def metrics(self) -> dict[str, float]:
        """Return every series of /metrics by its name and labels."""
        pool = Pool(self.address)
        try:
            text = (await pool.request("GET", "/metrics", timeout_s=_ASK_S)).body.decode()
        finally:
            pool.close()
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    async def look(self, target: str) -> Any:
        """Return the answer of the operator's address to ``target``."""
        return json.loads((await self.door.request("GET", target, timeout_s=_ASK_S)).body)

    async def propose(self, plan: Mapping[str, Any]) -> int:
        """Propose a plan and return the status of the answer."""
        body = json.dumps(plan).encode()
        return (await self.door.request("PUT", "/v1/plan", (), body, _ASK_S)).status

    @property
    def pid(self) -> int:
        """Process id of the sidecar."""
        assert self._process
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the sidecar still runs."""
        return self._process is not None and self._process.returncode is None

    def memory_mib(self) -> float:
        """Return the sidecar's memory."""
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        return int(found[1]) / 1024 if found else 0.0

    def open_files(self) -> int:
        """Return the number of the sidecar's file descriptors."""
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())

    def said(self) -> str:
        """Return the sidecar's log."""
        return self.log.read_text("utf-8", "replace")

    def terminate(self) -> None:
        """Send the sidecar SIGTERM."""
        assert self._process
        self._process.terminate()

    async def exit_code(self, timeout_s: float) -> int:
        """Return the sidecar's exit code; -1 if it does not end."""
        assert self._process
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(self._process.wait(), timeout_s)
        return -1

    async def _start_sidecar(self) -> None:
        if self.handlers:
            where = {"sidecar_upstreams": ",".join(handler.address for handler in self.handlers)}
            listen = f"unix:{self._folder}/sidecar.sock"
        else:
            where, listen = {"fprocess": " ".join(_HANDLER)}, "127.0.0.1:0"
        own = {"sidecar_listen": listen, "sidecar_admin": self.door.address}
        env = {**os.environ, **_SETTINGS, **where, **own}
        with self.log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "sidecar", cwd=ROOT, env=env, stderr=log
            )
        await wait_until_async(self._said_where, _START_S, "the sidecar's start")
        async with asyncio.timeout(_START_S):
            while not all(await self._up()):  # noqa: ASYNC110 - another process changes it
                await asyncio.sleep(0.02)

    def _said_where(self) -> bool:
        found = re.search(r"listening on (\S+),", self.said())
        self.address = found[1] if found else ""
        return bool(found)

    async def _up(self) -> list[bool]:
        """Return for each instance whether it is up."""
        try:
            return [instance["up"] for instance in await self.look("/v1/instances")]
        except ConnectionFailed:  # the side door opens a moment after the front door
            return [False]


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
