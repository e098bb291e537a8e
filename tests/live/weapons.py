"""Faults for chaos tests: SIGKILL, SIGSTOP for a while, a removed store, a full disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from typing import TYPE_CHECKING, NamedTuple

from tests.live.kept_up import KeptUp

if TYPE_CHECKING:
    import random
    import threading
    from collections.abc import Iterator
    from pathlib import Path

    from tests.live.load import Outcome
    from tests.live.stack import Stack

__all__ = ["BATCH", "PROVIDER", "RATE_RPS", "Blow", "Weapons", "small_disk"]

RATE_RPS = 80
BATCH = 8
PROVIDER = "carpool up"
_SCALER = "carpool scaler run"
_PAUSE_S = 3.0
_STOPPED_S = 15.0  # at the most; a silent part is restarted after ten seconds
_FULL_S = 8.0
_NOTICED_S = 2.0  # within so long a front's death is known, also on a busy machine
_SILENT_S = 5.0  # and that it is stopped: a probe a second, each with two to be answered
_DISK_BYTES = 8 * 2**20
_BALLAST = "ballast"


class Blow(NamedTuple):
    """A fault, the part that it hit, and the most requests that the part was handling."""

    weapon: str
    victim: str
    taken: float


class Stopped(NamedTuple):
    """A stopped process, and the time at which it continues."""

    until_s: float
    process: int  # a descriptor of it, as its number may be another's by then


class Weapons:
    """Injects faults at random.

    Args:
        running: The stack.
        outcome: The outcome of its load.
        draw: Source of random numbers.
        parts: Words of the command lines of the processes to strike.

    Attributes:
        blows: The faults so far.
    """

    def __init__(self, running: Stack, outcome: Outcome, draw: random.Random, *parts: str) -> None:
        self._running = running
        self._outcome = outcome
        self._draw = draw
        self._parts = parts
        self._stopped: list[Stopped] = []
        self._full_until_s = 0.0
        self.blows: list[Blow] = []

    def strike_until(self, over: threading.Event) -> None:
        """Inject faults from time to time; finally continue stopped processes and free the disk."""
        next_s = time.monotonic()
        try:
            while not over.wait(0.1):
                now = time.monotonic()
                self._relent(now)
                if now >= next_s:
                    self._strike(now)
                    next_s = now + _PAUSE_S * self._draw.uniform(0.5, 1.5)
        finally:
            self._relent(float("inf"))

    def _strike(self, now: float) -> None:
        victim = self._draw.choice(self._parts)
        weapon = self._draw.choice((self._kill, self._stop))
        if victim == _SCALER and self._draw.random() < 0.5:
            weapon = self._draw.choice((self._remove_store, self._fill_disk))
        taken = weapon(victim, now)
        if taken is not None:
            self.blows.append(Blow(weapon.__name__.lstrip("_"), victim, taken))

    def _kill(self, victim: str, now: float) -> float | None:  # noqa: ARG002 - a weapon
        running = self._running
        if victim == PROVIDER:
            if not (isinstance(running, KeptUp) and running.is_back):
                return None
            running.kill_provider()
            return 0.0  # no answer is possible: connections break
        pid = self._one_of(victim)
        taken = self._in_hand(pid, _NOTICED_S)
        return taken if pid and running.kill_one(pid) else None

    def _stop(self, victim: str, now: float) -> float | None:
        running = self._running
        for_s = self._draw.uniform(0.5, _STOPPED_S)
        if victim == PROVIDER:
            if not (isinstance(running, KeptUp) and running.is_back):
                return None
            running.stalled(now, now + for_s)
            pid = running.up.process.pid
        else:
            pid = self._one_of(victim)
        if not pid:
            return None
        taken = self._in_hand(pid, _SILENT_S)
        with contextlib.suppress(ProcessLookupError):
            process = os.pidfd_open(pid)
            signal.pidfd_send_signal(process, signal.SIGSTOP)
            self._stopped.append(Stopped(now + for_s, process))
            return taken
        return None

    def _remove_store(self, victim: str, now: float) -> float:  # noqa: ARG002 - a weapon
        for path in self._store.glob("scaler.db*"):
            path.unlink(missing_ok=True)
        return 0.0

    def _fill_disk(self, victim: str, now: float) -> float | None:  # noqa: ARG002 - a weapon
        if not self._store.is_mount():
            return None
        self._full_until_s = now + self._draw.uniform(1.0, _FULL_S)
        with contextlib.suppress(OSError), (self._store / _BALLAST).open("wb", 0) as file:
            while True:
                file.write(bytes(2**16))
        return 0.0

    @property
    def _store(self) -> Path:
        return self._running.folder / ".carpool"

    def _one_of(self, victim: str) -> int:
        found = self._running.processes(victim)
        return self._draw.choice(found) if found else 0

    def _in_hand(self, pid: int, noticed_s: float) -> float:
        """Return a front's requests until its loss is noticed, or two batches of a handler."""
        if pid in self._running.fronts():
            return self._outcome.pending + RATE_RPS * noticed_s
        return 2 * BATCH

    def _relent(self, now: float) -> None:
        if now >= self._full_until_s:
            (self._store / _BALLAST).unlink(missing_ok=True)
        for stopped in [each for each in self._stopped if each.until_s <= now]:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(stopped.process, signal.SIGCONT)
            os.close(stopped.process)
            self._stopped.remove(stopped)


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mount a small disk at the folder where that is allowed."""
    folder.mkdir()
    mount = shutil.which("mount")
    size = f"size={_DISK_BYTES}"
    command = [mount or "mount", "-t", "tmpfs", "-o", size, "carpool-chaos", str(folder)]
    mounted = bool(mount) and not subprocess.run(command, check=False).returncode
    try:
        yield
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
