"""The scaler of ``carpool up``: a process of its own, kept running as long as the stack is.

It talks to sidecars through a socket in the stack's private folder, which also reaches instances
without a network, and to users at a port of this machine. Its output is passed on. Killing it does
no harm: sidecars continue with their last plan, and it restarts from its store.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.errors import CarpoolError
from carpool.files import replace_file
from carpool.process import exit_status
from carpool.process.child import ChildProcess, Command
from carpool.process.lines import read_lines
from carpool.process.supervisor import Supervisor
from faas_stack.interrupts import pass_on, say
from scaler.stack_folder import STORE_FILE, URL_FILE

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

__all__ = [
    "ScalerFailed",
    "ScalerProcess",
    "ScalerProcessOptions",
    "add_flags",
    "join_scaler_flag",
]

_ROOT = str(Path(__file__).resolve().parents[2])
_GRACE_S = 5.0
_MISUSED = 2  # the exit status for options that cannot be used
_LISTENING = re.compile(r'(?:^scaler: |"message": ")listening on (?!unix:)([^\s"]+:(\d+))(?:"|$)')


class ScalerFailed(CarpoolError):
    """Raised when the scaler does not start."""


@dataclass(frozen=True, slots=True)
class ScalerProcessOptions:
    """Settings for starting a scaler.

    Attributes:
        gateway: The provider's URL.
        run_dir: A private folder; processes with a TMPDIR in it are ended with the stack.
        folder: The stack's folder, to which paths among the options are relative.
        token: File with the token.
        port: Port for users; 0 for any.
        flags: Further options of ``carpool scaler run``.
    """

    gateway: str
    run_dir: Path
    folder: Path
    token: Path
    port: int
    flags: Sequence[str] = ()


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``carpool up`` that concern the scaler."""
    add = parser.add_argument
    add(
        "--scaler-port",
        type=int,
        default=8090,
        help="port of the scaler; 0: any free one (default: %(default)s)",
    )
    expected = "options for carpool scaler run, as one argument"
    add("--scaler", default="", metavar="OPTIONS", help=expected)


def join_scaler_flag(argv: Sequence[str]) -> list[str]:
    """Join ``--scaler`` and its argument, as the argument may also begin with a dash."""
    words = list(argv)
    if "--scaler" in words[:-1]:
        at = words.index("--scaler")
        words[at : at + 2] = [f"--scaler={words[at + 1]}"]
    return words


class ScalerProcess:
    """Keeps one scaler running.

    Attributes:
        address: Address for sidecars.
        url: URL for users; empty until it is known.
    """

    def __init__(self, options: ScalerProcessOptions) -> None:
        self._options = options
        self._port = options.port
        self._process = ChildProcess()
        self._supervisor = Supervisor(self._run, self._process, self._on_end)
        self._listens = asyncio.Event()
        self.address = f"unix:{options.run_dir}/scaler"
        self.url = ""

    @property
    def pid(self) -> int:
        """Process ID of the scaler; 0 while it does not run."""
        return self._process.pid

    async def start(self) -> None:
        """Start the scaler, and wait until it listens.

        Raises:
            ScalerFailed: The scaler ended instead.
        """
        await self._supervisor.start_until(self._listens)

    async def stop(self) -> None:
        """Stop the scaler, killing it after a grace period."""
        await self._supervisor.stop(_GRACE_S)

    async def _run(self) -> str:
        """Run the scaler once, from start to end, and return the outcome.

        Raises:
            ScalerFailed: It ends before it listens for the first time.
        """
        try:
            await self._process.start(self._command(), self._pass_on)
        except OSError as error:
            outcome = f"cannot be started: {error}"
            if not self._listens.is_set():
                message = f"the scaler {outcome}"
                raise ScalerFailed(message) from error
            return outcome
        code = await self._process.ended()
        outcome = f"ended with {exit_status.in_words(code)}"
        if self._listens.is_set() or self._supervisor.stopping:
            return outcome
        why = "does not start" if code == _MISUSED else f"{outcome} before it listened"
        own = code != _MISUSED or _has_address(self._options.flags)
        hint = "" if own else " (its --listen is --scaler-port of carpool up)"
        message = f"the scaler {why}; its output is above{hint}"
        raise ScalerFailed(message)

    def _on_end(self, outcome: str, pause_s: float) -> None:
        say(f"scaler: {outcome}; starting again in {pause_s:g} s")

    def _command(self) -> Command:
        options = self._options
        scratch = options.run_dir / "scaler-tmp"
        scratch.mkdir(mode=0o700, exist_ok=True)
        path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), _ROOT)))
        argv = (
            *(sys.executable, "-m", "carpool", "scaler", "run"),
            *("--gateway", options.gateway, "--token-file", str(options.token.resolve())),
            *("--listen", self.address),
            *([] if _has_address(options.flags) else ["--listen", f"127.0.0.1:{self._port}"]),
            *("--store", str(options.folder.resolve() / STORE_FILE)),
            *options.flags,
        )
        env = {**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": path}
        return Command(argv, env, options.folder)

    async def _pass_on(self, output: asyncio.StreamReader) -> None:
        """Print the scaler's output, which also contains its address."""
        async for line in read_lines(output):
            pass_on(line)
            if match := _LISTENING.search(line):
                self._listens_at(match[1], int(match[2]))

    def _listens_at(self, address: str, port: int) -> None:
        """Write the scaler's address to the stack's folder, for commands."""
        self.url = f"http://{address}"
        self._port = port  # for later starts, unless the options name an address
        known = self._options.folder / URL_FILE
        try:
            replace_file(known, f"{self.url}\n".encode(), 0o644)
        except OSError as error:
            say(f"scaler: {known} cannot be written ({error.strerror}); status needs --url")
        self._listens.set()


def _has_address(flags: Sequence[str]) -> bool:
    """Return whether options for the scaler name an address for users, in place of the port."""
    words = [word for flag in flags for word in flag.split("=", 1)]
    pairs = itertools.pairwise(words)
    return any(name == "--listen" and not value.startswith("unix:") for name, value in pairs)
