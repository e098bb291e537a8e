"""A life that is a process of this machine: started, read, and ended with all it has started.

Knows nothing of functions; what marks the processes that belong to it is in `leftovers`, and what
they may use of the machine in their partition.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool.cgroups import OUT_OF_MEMORY
from faas_stack.partition.allocation import NoRoom
from faas_stack.provider.local import leftovers
from faas_stack.provider.local.supervised import StartFailed
from faas_stack.provider.logs import LineBudget, LineCutter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from faas_stack.partition.partitions import Partition
    from faas_stack.provider.logs import LogRing

__all__ = ["Launch", "ProcessLife"]

_LOG_DRAIN_S = 1.0
_READ_BYTES = 16 * 1024  # at once: it may be as many lines, each of which takes time
_FLOOD_PAUSE_S = 0.001  # after each piece of a flood that is dropped


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start.

    Attributes:
        scratch: a private folder; the process listens on the socket ``s`` in it, and TMPDIR in
            ``env`` is this folder.
        prepare: makes that folder ready before each start, or raises `OSError`.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    folder: Path
    scratch: Path
    prepare: Callable[[], None]


class ProcessLife:
    """One process at a time, all in one partition."""

    def __init__(self, name: str, launch: Launch, partition: Partition, log: LogRing) -> None:
        self._name = name
        self._launch = launch
        self._partition = partition
        self._told = ""  # what the log says that it is confined to
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the entry command, while it runs."""
        return self._process.pid if self._process and self._process.returncode is None else None

    @property
    def confined(self) -> str:
        """What holds it to its limits, in words, and how often it was killed by that."""
        killed = self._partition.killed_for_memory
        often = f"; out of memory {killed} time{'s' * (killed > 1)}" if killed else ""
        return f"{self._partition}{often}" if self._told else ""

    async def start(self) -> str:
        """Start the entry command in a session of its own."""
        launch = self._launch
        try:
            launch.prepare()
        except OSError as error:
            message = f"cannot make {error.filename}: {error.strerror}"
            raise StartFailed(message) from error
        argv, env = self._enter()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *argv,
                env={**launch.env, **env},
                cwd=launch.folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            message = f"cannot start {launch.argv[0]!r}: {error.strerror}"
            raise StartFailed(message) from error
        return f"unix:{launch.scratch}/s"

    async def ended(self) -> str:
        """Wait for the entry command, end what it left behind, read its last words."""
        process = self._process
        assert process is not None  # noqa: S101 - it was started
        reader = asyncio.get_running_loop().create_task(self._read(process.stdout))
        killed_before = self._partition.killed_for_memory
        try:
            code = await process.wait()
            short = self._partition.killed_for_memory > killed_before
        finally:
            self._end_all()
        await asyncio.wait([reader], timeout=_LOG_DRAIN_S)
        reader.cancel()
        if code == -signal.SIGKILL and short:
            return f"SIGKILL, {OUT_OF_MEMORY}"
        return f"status {code}" if code >= 0 else signal.Signals(-code).name

    async def terminate(self) -> None:
        """SIGTERM to the entry command."""
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    async def kill(self) -> None:
        """SIGKILL to everything it started."""
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self._end_all()

    async def clear(self) -> None:
        """Remove the private folder and the partition, and what may still run there."""
        self._end_all()
        await self._partition.leave()
        shutil.rmtree(self._launch.scratch, ignore_errors=True)

    def _enter(self) -> tuple[tuple[str, ...], dict[str, str]]:
        """What to start, in its partition, and what that adds to the environment."""
        partition = self._partition
        try:
            entered = partition.enter(self._launch.argv)
        except NoRoom as error:
            raise StartFailed(str(error), counts=False) from error
        except OSError as error:
            message = f"cannot limit it: {error.filename}: {error.strerror}"
            raise StartFailed(message) from error
        if partition.limited and self._told != str(partition):
            self._told = str(partition)
            self._log.add(self._name, f"carpool: {partition}")
        return entered

    def _end_all(self) -> None:
        leftovers.end_all(str(self._launch.scratch))
        self._partition.end()

    async def _read(self, stream: asyncio.StreamReader | None) -> None:
        """Pass what it prints to the log, or as much of it as that takes, and slow down floods."""
        cutter, budget, now = LineCutter(), LineBudget(), asyncio.get_running_loop().time
        while stream and (data := await stream.read(_READ_BYTES)):
            if not budget.takes(data.count(b"\n"), now()):
                cutter.skip(data)
                await asyncio.sleep(_FLOOD_PAUSE_S)
                continue
            self._tell_dropped(budget)
            for line in cutter.feed(data):
                self._log.add(self._name, line)
        self._tell_dropped(budget)
        for line in cutter.end():
            self._log.add(self._name, line)

    def _tell_dropped(self, budget: LineBudget) -> None:
        if told := budget.told():
            self._log.add(self._name, f"carpool: {told}")
