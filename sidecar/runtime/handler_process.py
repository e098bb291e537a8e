"""Keeps the function's process beside the sidecar, of-watchdog or the handler, running.

Its error output is relayed. If it dies it is started again after a pause; if it hangs it is killed
first, with all processes that it has started.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import shutil
import signal
import sys
from typing import TYPE_CHECKING

from carpool.free_port import is_free
from carpool.own_cgroup import own_place
from carpool.process import exit_status, leftovers
from carpool.process.child import ChildProcess, Command
from carpool.process.exit_status import CANNOT_START
from carpool.process.ready_notice import ReadyNotices
from carpool.process.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable

    from carpool.process.early_start import EarlyStart
    from sidecar.runtime.handler_launch import HandlerLaunch

__all__ = ["HandlerProcess"]

log = logging.getLogger(__name__)

_FAILED_STARTS = 3  # deaths in a row before readiness, after which callers are told why
_TAIL_BYTES = 8192  # a line of the handler's own has up to 4096
_WATCHDOG_ENDS = " Forked function has terminated: "  # of-watchdog's last line says no more
# of-watchdog logs for each early probe that the handler does not listen yet.
_PROBED_EARLY = re.compile(
    rb'^.*Upstream HTTP request error: Get "[^"]*/_/ready": .*\n', re.MULTILINE
)


class HandlerProcess:
    """Keeps the function's process running.

    Args:
        launch: the process to start.
        started: its first run, if that has begun already.
    """

    def __init__(self, launch: HandlerLaunch, started: EarlyStart | None = None) -> None:
        self._launch = launch
        self._started = started
        self._ends: list[str] = []  # before `observe`
        self._on_exit: Callable[[str], None] = self._ends.append
        self._on_ready: Callable[[], None] = lambda: None
        self._notices: ReadyNotices | None = None
        self._hung = ""
        self._deaths = self._crashes = 0
        self._tail = b""
        self._short_of_memory = False
        self.crashes = ""
        self._place = own_place()
        self._killed_before = 0
        self._process = ChildProcess(self._end_rest)
        self._supervisor = Supervisor(self._run, self._process, self._on_end)

    @property
    def address(self) -> str:
        """Address where it takes batches."""
        return self._launch.address

    @property
    def key(self) -> str:
        """Secret that a batch must present."""
        return self._launch.key

    @property
    def pid(self) -> int:
        """Process ID; 0 while none runs."""
        return self._process.pid

    @property
    def failing(self) -> str:
        """Why it does not start, once it has died several times in a row. Empty otherwise."""
        if self._deaths < _FAILED_STARTS:
            return ""
        if self._short_of_memory:
            return self._place.out_of_memory()
        lines = self._tail.decode("utf-8", "replace").splitlines()
        own = [line for line in lines if line.strip() and _WATCHDOG_ENDS not in line]
        said = [line for line in own if line.startswith(CANNOT_START)] or own
        return said[-1] if said else "it exits without a message"

    def became_ready(self) -> None:
        """Note that the process answers, and forget its earlier deaths."""
        self._deaths = 0
        self._supervisor.became_ready()

    def kill_hung(self, reason: str) -> None:
        """Kill the process and its group, as it hangs for ``reason``; it is started again."""
        self._hung = reason
        self._process.kill_group()

    def start(self) -> None:
        """Start it, and keep it running until `stop`."""
        if self._launch.notices:
            with contextlib.suppress(OSError):  # optional: the handler is probed in any case
                loop = asyncio.get_running_loop()
                self._notices = ReadyNotices(self._launch.notices, self._heard, loop)
        self._supervisor.start()

    def observe(self, on_exit: Callable[[str], None], on_ready: Callable[[], None]) -> None:
        """Set the callbacks; ``on_exit`` is also called for earlier ends.

        Args:
            on_exit: called each time it ends, with the reason: ``died`` or ``hung``.
            on_ready: called when the process itself says that it is ready, if it does.
        """
        self._on_exit, self._on_ready = on_exit, on_ready
        for reason in self._ends:
            on_exit(reason)

    async def stop(self, grace_s: float) -> None:
        """End it with SIGTERM, and after ``grace_s`` with SIGKILL to all that it started."""
        await self._supervisor.stop(grace_s)
        if self._started:  # stopped before its first run was taken over
            self._started.end()
            self._end_rest()
        if self._notices:
            self._notices.close()
        if self._launch.scratch:
            shutil.rmtree(self._launch.scratch, ignore_errors=True)

    def _heard(self) -> None:
        self._on_ready()

    async def _run(self) -> str:
        """Run the process from start to end; return how it ended."""
        return await self._start() or await self._ended()

    async def _start(self) -> str:
        """Start it; return why that is not possible. Empty if it was started."""
        launch, started = self._launch, self._started
        self._started = None
        self._killed_before = self._place.killed_for_memory()
        if started:
            await self._process.take_over(started, self._relay)
            return ""
        if launch.port and not is_free(launch.port):
            return self._not_started(
                f"port {launch.port} is taken; choose another, or sidecar_handler_port=0"
            )
        command = Command(launch.argv, launch.env, parent_death=signal.SIGKILL)
        try:
            await self._process.start(command, self._relay)
        except OSError as error:
            return self._not_started(f"{launch.argv[0]!r}: {error.strerror}")
        return ""

    async def _ended(self) -> str:
        """Wait for its end; return how it ended."""
        how = exit_status.in_words(await self._process.ended())
        # Whichever process of the function was killed, this one has ended with it.
        self._short_of_memory = self._place.killed_for_memory() > self._killed_before
        why = f", {self._place.out_of_memory()}" if self._short_of_memory else ""
        return f"ended with {how}{why}"

    def _not_started(self, why: str) -> str:
        outcome = f"cannot be started: {why}"
        self._tail = outcome.encode()
        return outcome

    def _on_end(self, outcome: str, pause_s: float) -> None:
        if self._hung:
            outcome = f"was killed: {self._hung}"
        self._deaths += 1
        self._crashes += 1
        self.crashes = f"{self._crashes} {outcome}"
        self._on_exit("hung" if self._hung else "died")
        self._hung = ""
        log.warning("the function's process %s; starting again in %.1f s", outcome, pause_s)

    def _end_rest(self) -> None:
        """End processes that it has started in other sessions."""
        if self._launch.key:
            leftovers.end_marked(f"handler_key={self._launch.key}")

    async def _relay(self, output: asyncio.StreamReader) -> None:
        """Write its error output to this process's, and keep the last part of it."""
        while data := await output.read(65536):
            data = _PROBED_EARLY.sub(b"", data)
            self._tail = (self._tail + data)[-_TAIL_BYTES:]
            with contextlib.suppress(OSError):  # nothing reads this any more; the handler continues
                sys.stderr.buffer.write(data)
                sys.stderr.buffer.flush()
