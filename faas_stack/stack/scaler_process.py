"""The scaler of ``carpool up``: a process of its own, kept running as long as the stack is.

It speaks with sidecars through a socket in the stack's private folder, which reaches into instances
that have no network, and with people at a port of this machine. What it prints is passed on. That
it is killed does no harm: sidecars go on with their last plan, and it starts again from its store.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.address import parse
from carpool.backoff import Backoff
from carpool.errors import CarpoolError
from carpool.files import replace_file
from carpool.settings import FunctionSettings
from faas_stack.interrupts import say
from faas_stack.provider.logs import LineCutter
from scaler.stack_folder import STORE_FILE, URL_FILE

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from faas_stack.stack.stack_function import StackFunction

__all__ = ["Needs", "ScalerFailed", "ScalerProcess", "add_flags", "is_scaled", "joined"]

_ROOT = str(Path(__file__).resolve().parents[2])
_GRACE_S = 5.0
_MISUSED = 2  # the exit status for options that cannot be used
_LISTENING = re.compile(r"scaler: listening on (?!unix:)(\S+)")


class ScalerFailed(CarpoolError):
    """The scaler does not start."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a scaler is started with.

    Attributes:
        gateway: The provider's URL.
        run_dir: A private folder that ends whatever is started with it as TMPDIR.
        folder: The stack's; relative paths among the options are relative to it.
        token: The file that the token is in.
        port: Where people ask; 0: any.
        options: Further ones of ``carpool scaler run``.
    """

    gateway: str
    run_dir: Path
    folder: Path
    token: Path
    port: int
    options: Sequence[str] = ()


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The options of ``carpool up`` that concern the scaler."""
    add = parser.add_argument
    add("--scaler-port", type=int, default=8090, help="0: any free port (default: %(default)s)")
    expected = "further options of carpool scaler run, as one argument"
    add("--scaler", default="", metavar="OPTIONS", help=expected)


def joined(argv: Sequence[str]) -> list[str]:
    """``--scaler`` and its argument as one word: the argument may begin with a dash, too."""
    words = list(argv)
    if "--scaler" in words[:-1]:
        at = words.index("--scaler")
        words[at : at + 2] = [f"--scaler={words[at + 1]}"]
    return words


def is_scaled(function: StackFunction) -> bool:
    """Whether its instances are the scaler's."""
    settings = FunctionSettings.from_labels(function.labels, function.annotations)
    return settings.scale_policy != "fixed"


class ScalerProcess:
    """Keeps one scaler running.

    Attributes:
        address: Where sidecars reach it.
        url: Where people reach it; empty until it is known.
        pid: Of the process that runs; 0 while none does.
    """

    def __init__(self, needs: Needs) -> None:
        self._needs = needs
        self._port = needs.port
        self._task: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._listens = asyncio.Event()
        self.address = f"unix:{needs.run_dir}/scaler"
        self.url = ""

    @property
    def pid(self) -> int:
        """Of the process that runs; 0 while none does."""
        return self._process.pid if self._process and self._process.returncode is None else 0

    async def start(self) -> None:
        """Start it, and wait until it listens.

        Raises:
            ScalerFailed: it ended instead.
        """
        self._task = asyncio.get_running_loop().create_task(self._keep())
        listens = asyncio.get_running_loop().create_task(self._listens.wait())
        await asyncio.wait({self._task, listens}, return_when=asyncio.FIRST_COMPLETED)
        listens.cancel()
        if self._task.done():
            message = (
                "the scaler does not start; what it said is above (what it calls --listen is "
                "--scaler-port of carpool up)"
            )
            raise ScalerFailed(message)

    async def stop(self) -> None:
        """End it in good order, or else at once."""
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._process and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GRACE_S):
                    await self._process.wait()
            if self._process.returncode is None:
                self._process.kill()
                await self._process.wait()

    async def _keep(self) -> None:
        """Start it again whenever it ends, unless it cannot use its options."""
        loop, backoff = asyncio.get_running_loop(), Backoff()
        while True:
            began = loop.time()
            try:
                self._process = await self._started()
            except OSError as error:
                how = f"cannot be started: {error}"
                if not self._listens.is_set():
                    say(f"scaler: {how}")
                    return
            else:
                await self._pass_on(self._process)
                code = await self._process.wait()
                if code == _MISUSED and not self._listens.is_set():
                    return
                how = f"ended with {code}"
            wait_s = backoff.after(loop.time() - began)
            say(f"scaler: {how}; starting again in {wait_s:g} s")
            await asyncio.sleep(wait_s)

    async def _started(self) -> asyncio.subprocess.Process:
        needs = self._needs
        scratch = needs.run_dir / "scaler-tmp"
        scratch.mkdir(mode=0o700, exist_ok=True)
        path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), _ROOT)))
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "carpool", "scaler", "run"),
            *("--gateway", needs.gateway, "--token-file", str(needs.token.resolve())),
            *("--listen", self.address, "--listen", f"127.0.0.1:{self._port}"),
            *("--store", str(needs.folder.resolve() / STORE_FILE)),
            *needs.options,
            env={**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": path},
            cwd=needs.folder,
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )

    async def _pass_on(self, process: asyncio.subprocess.Process) -> None:
        """Print what it prints; it also says where it listens."""
        cutter = LineCutter()
        assert process.stderr is not None  # noqa: S101 - it was asked for
        while data := await process.stderr.read(65536):
            for line in cutter.feed(data):
                say(line)
                if found := _LISTENING.match(line):
                    self._found(found[1])

    def _found(self, address: str) -> None:
        """It listens there: note it in the stack's folder, for commands."""
        self.url = f"http://{address}"
        self._port = parse(address).port  # the same from now on, however often it starts
        known = self._needs.folder / URL_FILE
        try:
            replace_file(known, f"{self.url}\n".encode(), 0o644)
        except OSError as error:
            say(f"scaler: {known} cannot be written ({error.strerror}); status needs --url")
        self._listens.set()
