"""An instance as a process of this machine: started, logged, and ended with its descendants.

Knows nothing of functions. Processes that belong to the instance are found by its TMPDIR (see
`leftovers`); its partition limits what it may use of the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool.own_cgroup import OUT_OF_MEMORY
from carpool.process import exit_status, leftovers, ready_notice
from carpool.process.child import ChildProcess, Command
from carpool.process.lines import read_lines
from carpool.process.ready_notice import ReadyNotices
from faas_stack.partition.allocation import NoCapacity
from faas_stack.provider.local.supervised_instance import StartFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from faas_stack.partition.partitions import Partition
    from faas_stack.provider.logs import LogRing

__all__ = ["ProcessLaunch", "ProcessRunner"]


@dataclass(frozen=True, slots=True)
class ProcessLaunch:
    """A command to start, with its environment and folders.

    Attributes:
        scratch: A private folder; the process listens on the socket ``s`` in it, and TMPDIR in
            ``env`` is this folder.
        prepare: Prepares that folder before each start, or raises `OSError`.

    The process may report its readiness on the socket that ``NOTIFY_SOCKET`` in ``env`` names.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    folder: Path
    scratch: Path
    prepare: Callable[[], None]


class ProcessRunner:
    """Runs one process at a time, all in one partition.

    Attributes:
        on_ready: Called when the process reports its own readiness.
    """

    def __init__(
        self, name: str, launch: ProcessLaunch, partition: Partition, log: LogRing
    ) -> None:
        self._name = name
        self._launch = launch
        self._partition = partition
        self._limits_logged = ""  # the limits as they were last logged
        self._log = log
        self._process = ChildProcess(self._end_rest)
        self._notices: ReadyNotices | None = None
        self.on_ready: Callable[[], None] = lambda: None

    @property
    def pid(self) -> int:
        """Process ID of the entry command; 0 if it does not run."""
        return self._process.pid

    @property
    def confined(self) -> str:
        """How the process is held to its limits, in words, and how often it ran out of memory."""
        killed = self._partition.killed_for_memory
        often = f"; out of memory {killed} time{'s' * (killed > 1)}" if killed else ""
        return f"{self._partition}{often}" if self._limits_logged else ""

    async def start(self) -> str:
        """Start the entry command and return the address of its socket."""
        launch = self._launch
        try:
            launch.prepare()
        except OSError as error:
            message = f"cannot create {error.filename}: {error.strerror}"
            raise StartFailed(message) from error
        self._listen()
        argv, env = self._enter()
        command = Command(argv, {**launch.env, **env}, launch.folder)
        try:
            await self._process.start(command, self._read, with_stdout=True)
        except OSError as error:
            message = f"cannot start {launch.argv[0]!r}: {error.strerror}"
            raise StartFailed(message) from error
        return f"unix:{launch.scratch}/s"

    def _listen(self) -> None:
        """Listen for the process's own report that it is ready."""
        if self._notices is None:
            path, loop = self._launch.env[ready_notice.VARIABLE], asyncio.get_running_loop()
            with contextlib.suppress(OSError):  # optional: the instance is probed in any case
                self._notices = ReadyNotices(path, self._heard, loop)

    def _heard(self) -> None:
        self.on_ready()

    async def ended(self) -> str:
        """Wait for the entry command and the processes it left to end, and return how it ended."""
        killed_before = self._partition.killed_for_memory
        code = await self._process.ended()
        how = exit_status.in_words(code)
        short = self._partition.killed_for_memory > killed_before
        return f"{how}, {OUT_OF_MEMORY}" if code == -signal.SIGKILL and short else how

    async def terminate(self) -> None:
        """Send SIGTERM to the entry command."""
        await self._process.terminate()

    async def kill(self) -> None:
        """Send SIGKILL to all processes of the instance."""
        await self._process.kill()

    async def clear(self) -> None:
        """Remove the private folder and the partition, and end all processes in them."""
        self._end_rest()
        if self._notices:
            self._notices.close()
        await self._partition.leave()
        shutil.rmtree(self._launch.scratch, ignore_errors=True)

    def _enter(self) -> tuple[tuple[str, ...], dict[str, str]]:
        """Enter the partition; return the command to start and the variables to add."""
        partition = self._partition
        try:
            entered = partition.enter(self._launch.argv)
        except NoCapacity as error:
            raise StartFailed(str(error), counts=False) from error
        except OSError as error:
            message = f"cannot limit it: {error.filename}: {error.strerror}"
            raise StartFailed(message) from error
        if partition.limited and self._limits_logged != str(partition):
            self._limits_logged = str(partition)
            self._log.add(self._name, f"carpool: {partition}")
        return entered

    def _end_rest(self) -> None:
        leftovers.end_marked(f"TMPDIR={self._launch.scratch}")
        self._partition.end()

    async def _read(self, output: asyncio.StreamReader) -> None:
        async for line in read_lines(output):
            self._log.add(self._name, line)
