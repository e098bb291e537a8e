"""A folder whose processes end, and which is removed, with the process that opened it.

This holds however that process ends: a keeper (`carpool.process.leftovers`) holds the other end of
a pipe. Everything started here has the folder as its TMPDIR, by which the keeper finds it; what
containers run is in control groups of the folder's name. Mounts and networks belong to namespaces
that only these processes are in, so they end with them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.process import leftovers
from tests.waiting import HANG_S, stop_process

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["PREFIX", "Workspace", "control_groups"]

PREFIX = "carpool-cluster-"


def control_groups(name: str) -> list[Path]:
    """Return the control groups of a name, one in each hierarchy; they need not exist."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return [Path(at, name) for _, at, kind, *_ in mounts if kind in ("cgroup", "cgroup2")]


class Workspace:
    """Processes that share a folder.

    Args:
        keep_open: descriptors that stay open until all is removed, such as those of locks.

    Attributes:
        folder: files of the processes, including their logs (``NAME.log``).
        enter: command prefix that runs a command in the same namespaces as the others.
    """

    def __init__(self, keep_open: Iterable[int] = ()) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        self.folder.chmod(0o755)  # containers run as other users
        self.enter: tuple[str, ...] = ()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, tuple[str, ...]] = {}
        keeper = (sys.executable, "-I", "-S", str(leftovers.__file__), str(self.folder))
        self._keeper = subprocess.Popen(
            (*keeper, *map(str, control_groups(self.name))),
            stdin=subprocess.PIPE,
            start_new_session=True,
            pass_fds=tuple(keep_open),
        )

    @property
    def name(self) -> str:
        """Name that is unique on this machine."""
        return self.folder.name

    def start(self, name: str, *argv: str) -> subprocess.Popen[bytes]:
        """Start a process that runs until it is stopped or the workspace is closed."""
        self._commands[name] = argv
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                (*self.enter, *argv),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self._env(),
                start_new_session=True,
            )
        return self._running[name]

    def run(self, *argv: str) -> str:
        """Run a command, which must succeed, and return its output."""
        command = (*self.enter, *argv)
        done = subprocess.run(
            command, check=False, capture_output=True, cwd=self.folder, env=self._env(), text=True
        )
        assert 0 == done.returncode, f"{' '.join(argv)}: {done.stderr or done.stdout}"
        return done.stdout

    def stop(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """End a process by a signal."""
        process = self._running.pop(name)
        process.send_signal(number)
        try:
            process.wait(HANG_S)
        finally:
            process.kill()

    def restart(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Kill a process, or end it by another signal, and start it again."""
        self.stop(name, number)
        self.start(name, *self._commands[name])

    @contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        """Suspend a process during the context."""
        stop_process(self._running[name].pid)
        try:
            yield
        finally:
            self._running[name].send_signal(signal.SIGCONT)

    def check(self) -> None:
        """Fail if a process has ended by itself, with the end of its log."""
        for name, process in self._running.items():
            if process.poll() is not None:
                last = (self.folder / f"{name}.log").read_text(errors="replace")[-3000:]
                message = f"{name} ended with {process.returncode}: {last}"
                raise AssertionError(message)

    def close(self) -> None:
        """End all processes and remove the folder."""
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()
        self._keeper.wait(5 * HANG_S)  # a node's images are many thousands of files
        for process in self._running.values():
            process.wait(HANG_S)

    def _env(self) -> dict[str, str]:
        return {**os.environ, "TMPDIR": str(self.folder)}
