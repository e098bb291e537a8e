"""A child process in a session of its own, with its output read, and ended with its descendants."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from carpool.process import forks
from carpool.process.parent_death import tell_on_parent_death

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from pathlib import Path

    from carpool.process.early_start import EarlyStart

    ReadOutput = Callable[[asyncio.StreamReader], Coroutine[Any, Any, None]]

__all__ = ["ChildProcess", "Command", "end"]

forks.keep_garbage()

_DRAIN_S = 1.0  # for its last output, if a process that cannot be found holds the pipe open


@dataclass(frozen=True, slots=True)
class Command:
    """A command to start.

    Attributes:
        argv: the program and its arguments.
        env: its whole environment; None for that of this process.
        cwd: its working directory; None for that of this process.
        parent_death: the signal that the kernel sends it when this process ends; None for no
            signal.
    """

    argv: Sequence[str]
    env: Mapping[str, str] | None = None
    cwd: Path | None = None
    parent_death: signal.Signals | None = None


class ChildProcess:
    """One child process at a time, without standard input and without inherited open files.

    Args:
        end_rest: ends what the process has started outside its process group.
    """

    def __init__(self, end_rest: Callable[[], None] | None = None) -> None:
        self._end_rest = end_rest
        self._stopped = False  # since it began to start
        self._process: asyncio.subprocess.Process | EarlyStart | None = None
        self._pipe: asyncio.BaseTransport | None = None
        self._reader: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """Process id; 0 if no process is running."""
        return self._process.pid if self._process and self._process.returncode is None else 0

    async def start(
        self, command: Command, read: ReadOutput | None = None, *, with_stdout: bool = False
    ) -> None:
        """Start a process; kill it at once if it was stopped while starting.

        Args:
            command: the command to start.
            read: reads its standard error to the end; None to inherit the standard error of this
                process.
            with_stdout: whether ``read`` gets its standard output, too.

        Raises:
            OSError: the process cannot be started.
        """
        self._stopped = False
        output = await self._open_output(read) if read else None
        on_parent_death = partial(tell_on_parent_death, command.parent_death or 0)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command.argv,
                env=None if command.env is None else dict(command.env),
                cwd=command.cwd,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output if with_stdout else None,
                stderr=output,
                start_new_session=True,
                preexec_fn=on_parent_death if command.parent_death else None,
            )
        except BaseException:
            self._close_output()
            raise
        finally:
            if output is not None:
                os.close(output)
        if self._stopped:
            await self.kill()

    async def take_over(self, started: EarlyStart, read: ReadOutput) -> None:
        """Take over a process that was started before the event loop, as if it were started here.

        Args:
            started: the process.
            read: reads its standard error to the end.
        """
        self._stopped = False
        await self._read_from(started.errors, read)
        self._process = started
        if self._stopped:
            await self.kill()

    async def ended(self) -> int:
        """Wait until the process ends, end its descendants and return its exit code.

        Its last output is read first, for a limited time.
        """
        process = self._process
        assert process is not None  # noqa: S101 - it was started
        try:
            try:
                code = await process.wait()
            finally:
                self._end_all(process.pid)
            if self._reader:
                await asyncio.wait([self._reader], timeout=_DRAIN_S)
        finally:
            self._close_output()
        return code

    async def terminate(self) -> None:
        """Send SIGTERM to the process itself, which may finish its work."""
        self._stopped = True
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    async def kill(self) -> None:
        """Send SIGKILL to the process and everything it started."""
        self._stopped = True
        self._end_all(self.pid)

    def kill_group(self) -> None:
        """Send SIGKILL to the process and its process group."""
        _kill_group(self.pid)

    def _end_all(self, pid: int) -> None:
        _kill_group(pid)
        if self._end_rest:
            self._end_rest()

    async def _open_output(self, read: ReadOutput) -> int:
        """Start reading the output of the next process; return its end of the pipe.

        The other end is closed here, as what the process leaves behind may hold this one forever.
        """
        reading, writing = os.pipe()
        await self._read_from(reading, read)
        return writing

    async def _read_from(self, reading: int, read: ReadOutput) -> None:
        loop, stream = asyncio.get_running_loop(), asyncio.StreamReader()
        self._pipe, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(reading, "rb", 0)
        )
        self._reader = loop.create_task(read(stream))

    def _close_output(self) -> None:
        if self._reader:
            self._reader.cancel()
        if self._pipe:
            self._pipe.close()
        self._reader = self._pipe = None


def end(process: subprocess.Popen[Any], *signals: int, grace_s: float) -> None:
    """End a process that leads a session, by one signal after the other, then kill its group."""
    for number in signals:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.send_signal(number)
            process.wait(grace_s)
            break
    _kill_group(process.pid)
    process.wait()


def _kill_group(pid: int) -> None:
    if pid:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
