"""One supervised process: started, asked whether it is ready, restarted, ended.

Theory of operation: one task sees the process through from start to end, clears up what it left,
waits and starts it again. While it runs, one task reads what it prints and another asks its
readiness, often until it is ready and once a second from then on. Knows nothing of functions.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool.backoff import Backoff
from carpool.http.client import ConnectionFailed, Pool
from faas_stack.provider import leftovers
from faas_stack.provider.logs import LineCutter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from faas_stack.provider.logs import LogRing

__all__ = ["Launch", "Supervised"]

_UNREADY_PROBE_S = 0.05
_READY_PROBE_S = 1.0
_PROBE_TIMEOUT_S = 2.0
_FAILING_STARTS = 3
_LOG_DRAIN_S = 1.0
_REASON_BYTES = 500


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start.

    Attributes:
        scratch: a private folder; the process listens on the socket ``s`` in it, and TMPDIR in
            ``env`` is this folder.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    folder: Path
    scratch: Path


class Supervised:
    """One supervised process."""

    def __init__(
        self, name: str, launch: Launch, log: LogRing, changed: Callable[[], None]
    ) -> None:
        self.name = name
        self.address = f"unix:{launch.scratch}/s"
        self.ready = False
        self.reason = ""
        self._launch = launch
        self._log = log
        self._changed = changed
        self._pool = Pool(self.address, max_connections=2)
        self._backoff = Backoff()
        self._was_ready = False
        self._says_failing = False
        self._failed_starts = 0
        self._stopping = False
        self._look = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._task = asyncio.get_running_loop().create_task(self._supervise())

    @property
    def failing(self) -> bool:
        """Whether it, or what it starts, has died several times in a row before it was ready."""
        return self._failed_starts >= _FAILING_STARTS or self._says_failing

    @property
    def pid(self) -> int | None:
        """Process id of the entry command, while it runs."""
        return self._process.pid if self._process and self._process.returncode is None else None

    def suspect(self) -> None:
        """Not ready until the next look, which is now."""
        self._set_ready(ready=False)
        self._look.set()

    async def stop(self, grace_s: float) -> None:
        """SIGTERM, after ``grace_s`` SIGKILL to everything it started; returns when it is gone."""
        self._stopping = True
        if self.pid is None:
            self._task.cancel()
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
            await asyncio.wait([self._task], timeout=grace_s)
            if not self._task.done():
                self._say(f"still there {grace_s:g} s after SIGTERM: killed")
                self.kill()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        leftovers.end_all(str(self._launch.scratch))
        self._pool.close()
        shutil.rmtree(self._launch.scratch, ignore_errors=True)

    def kill(self) -> None:
        """End everything it started, now."""
        self._stopping = True
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        leftovers.end_all(str(self._launch.scratch))

    async def _supervise(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._stopping:
            began = loop.time()
            was_ready = await self._run_once()
            if self._stopping:
                return
            self._failed_starts = 0 if was_ready else self._failed_starts + 1
            wait_s = self._backoff.after(loop.time() - began)
            self._say(f"starting again in {wait_s:g} s")
            self._changed()
            await asyncio.sleep(wait_s)

    async def _run_once(self) -> bool:
        """Start the process and see it through to its end; whether it ever was ready."""
        launch = self._launch
        try:
            process = await asyncio.create_subprocess_exec(
                *launch.argv,
                env=launch.env,
                cwd=launch.folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            self._say(f"cannot start {launch.argv[0]!r}: {error.strerror}")
            return False
        self._process = process
        self._was_ready = False
        if self._stopping:  # asked to stop while it was being started
            process.terminate()
        loop = asyncio.get_running_loop()
        reader = loop.create_task(self._read(process.stdout))
        prober = loop.create_task(self._probe())
        try:
            code = await process.wait()
        finally:
            prober.cancel()
            leftovers.end_all(str(launch.scratch))
        self._set_ready(ready=False)
        await asyncio.wait([reader], timeout=_LOG_DRAIN_S)
        reader.cancel()
        if not self._stopping:
            how = f"status {code}" if code >= 0 else signal.Signals(-code).name
            self._say(f"ended with {how}")
        return self._was_ready

    async def _read(self, stream: asyncio.StreamReader | None) -> None:
        """Pass what it prints to the log, never blocking it."""
        cutter = LineCutter()
        while stream and (data := await stream.read(65536)):
            for line in cutter.feed(data):
                self._log.add(self.name, line)
        for line in cutter.end():
            self._log.add(self.name, line)

    async def _probe(self) -> None:
        """Ask again and again whether it is ready: often until it is, then once a second."""
        while True:
            self._set_ready(ready=await self._answers())
            wait_s = _READY_PROBE_S if self.ready else _UNREADY_PROBE_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._look.wait()
            self._look.clear()

    async def _answers(self) -> bool:
        try:
            answer = await self._pool.request("GET", "/_/ready", timeout_s=_PROBE_TIMEOUT_S)
        except (ConnectionFailed, TimeoutError):
            return False
        ready = answer.status == 200  # noqa: PLR2004
        self.reason = "" if ready else answer.body[:_REASON_BYTES].decode("utf-8", "replace")
        failing = not ready and answer.header(b"x-carpool-failing") is not None
        if failing != self._says_failing:
            self._says_failing = failing
            self._changed()
        return ready

    def _set_ready(self, *, ready: bool) -> None:
        if ready != self.ready:
            self.ready = ready
            if ready:
                self._was_ready = True
                self._failed_starts = 0
            self._changed()

    def _say(self, text: str) -> None:
        self._log.add(self.name, f"carpool: {text}")
