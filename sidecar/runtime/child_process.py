"""The function's process beside the sidecar: of-watchdog where it is installed, else the handler.

Starts it, restarts it with back-off when it dies, relays its error output, and ends it, in good
order or because it hangs, with whatever it has started. In the watchdog's case the watchdog starts
the handler (``fprocess``) itself, with the same environment and in the same process group, and both
end together.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import re
import secrets
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from carpool import durations
from carpool.backoff import Backoff
from carpool.cgroups import own_place
from carpool.errors import ConfigError, Problem
from carpool.parent_death import tell_on_parent_death

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sidecar.options import Options

__all__ = ["Child", "Launch", "plan_launch"]

log = logging.getLogger(__name__)

_HOPELESS_STARTS = 3  # deaths in a row before readiness, after which callers are told why
_TAIL_BYTES = 2000
# of-watchdog says of each of our early probes that the handler does not listen yet.
_PROBED_EARLY = re.compile(
    rb'^.*Upstream HTTP request error: Get "[^"]*/_/ready": .*\n', re.MULTILINE
)
_LAST_WORDS_S = 1.0  # for what it printed, if a process that we cannot find holds its pipe
_LATER_S = 1.0  # the watchdog's times are over after ours, so that we find out first
_NO_TIMEOUT = "8760h"  # the watchdog does not start without a limit to its writing


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start.

    Attributes:
        argv: the command.
        env: its environment.
        address: where it takes batches.
        key: what a batch must show there; a secret.
        scratch: a folder made for it, removed when it is stopped; empty if none.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    address: str
    key: str
    scratch: str = ""


def plan_launch(options: Options, env: Mapping[str, str]) -> Launch:
    """Decide how the function's process is started.

    Raises:
        ConfigError: no ``fprocess``, or the watchdog is demanded and missing.
    """
    if not options.fprocess:
        problem = Problem("fprocess", "", "the handler's command", "python -m watchdog_plugin")
        raise ConfigError([problem])
    # of-watchdog listens on every interface, so all that reaches this machine reaches the handler.
    key = secrets.token_hex(16)
    env = {**_limits(options), **env, "handler_key": key}
    watchdog = shutil.which("fwatchdog", path=env.get("PATH")) if options.watchdog != "off" else ""
    if watchdog:
        return _behind_watchdog(watchdog, options, env, key)
    if options.watchdog == "on":
        expected = "fwatchdog on the PATH"
        raise ConfigError([Problem("sidecar_watchdog", "on", expected, "install of-watchdog")])
    scratch = tempfile.mkdtemp(prefix="carpool-")
    address = f"unix:{scratch}/handler.sock"
    own = {"handler_listen": address, "handler_exit_on_term": "true"}
    return Launch(tuple(options.fprocess.split()), {**env, **own}, address, key, scratch)


def _limits(options: Options) -> dict[str, str]:
    """The handler must take what the sidecar may send, bodies and a MiB for their heads.

    It must not answer more than the sidecar takes.
    """
    return {
        "handler_body_max_mib": str(options.body_max_bytes // 2**20 + 2),
        "handler_answer_max_mib": str(max(1, options.answer_max_bytes // 2**20)),
    }


def _behind_watchdog(watchdog: str, options: Options, env: Mapping[str, str], key: str) -> Launch:
    limited = options.exec_timeout_s < math.inf
    timeout = durations.format(options.exec_timeout_s + _LATER_S) if limited else _NO_TIMEOUT
    defaults = {
        "read_timeout": timeout,
        "write_timeout": timeout,
        "healthcheck_interval": "1s",
        "log_buffer_size": "-1",  # a line over the default 64 KiB would end the log pump for good
        "prefix_logs": "false",
    }
    own = {
        "exec_timeout": timeout if limited else "0s",
        "mode": "http",
        "port": str(options.watchdog_port),
        "upstream_url": f"http://127.0.0.1:{options.handler_port}",
        "ready_path": "/_/ready",
        "handler_listen": f"127.0.0.1:{options.handler_port}",
        "fprocess": options.fprocess,
    }
    address = f"127.0.0.1:{options.watchdog_port}"
    return Launch((watchdog,), {**defaults, **env, **own}, address, key)


class Child:
    """Keeps one process running.

    Args:
        launch: what to start.
        on_exit: called each time it ends, and told why: ``died`` or ``hung``.
    """

    def __init__(self, launch: Launch, on_exit: Callable[[str], None]) -> None:
        self._launch = launch
        self._on_exit = on_exit
        self._process: asyncio.subprocess.Process | None = None
        self._ending = False
        self._hung = ""
        self._deaths = 0
        self._backoff = Backoff()
        self._tail = b""
        self._short_of_memory = False
        self._place = own_place()
        self._task: asyncio.Task[None] | None = None

    @property
    def failing(self) -> str:
        """Why it does not start, once it has died several times in a row; else empty."""
        if self._deaths < _HOPELESS_STARTS:
            return ""
        if self._short_of_memory:
            return self._place.out_of_memory()
        last = self._tail.decode("utf-8", "replace").strip().splitlines()
        return last[-1] if last else "it exits without saying why"

    def became_ready(self) -> None:
        """The process answers: what it died of before is history."""
        self._deaths = 0
        self._backoff = Backoff()

    def hung(self, reason: str) -> None:
        """Kill what there is of it now, to be started again: it hangs, and why that is thought."""
        self._hung = reason
        if self._process and self._process.returncode is None:
            _kill_group(self._process.pid)

    def start(self) -> None:
        """Start it, and keep it running until `stop`."""
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def stop(self, grace_s: float) -> None:
        """End it: SIGTERM, after ``grace_s`` SIGKILL to what is left of its process group."""
        self._ending = True
        process = self._process
        if process and process.returncode is None:
            process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), grace_s)
            self._end_rest(process.pid)
        if self._task:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._launch.scratch:
            shutil.rmtree(self._launch.scratch, ignore_errors=True)

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._ending:
            began = loop.time()
            code = await self._run_once()
            if self._ending:
                return
            self._deaths += 1
            why = f"was killed: {self._hung}" if self._hung else f"ended with {code}"
            self._on_exit("hung" if self._hung else "died")
            self._hung = ""
            wait_s = self._backoff.after(loop.time() - began)
            log.warning("the function's process %s; next in %.1f s", why, wait_s)
            await asyncio.sleep(wait_s)

    async def _run_once(self) -> str:
        loop, launch, words = asyncio.get_running_loop(), self._launch, asyncio.StreamReader()
        reading, writing = os.pipe()
        # Ours to close: something that it leaves behind may hold the other end open for ever.
        pipe, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(words), os.fdopen(reading, "rb", 0)
        )
        with contextlib.closing(pipe):
            try:
                self._process = process = await asyncio.create_subprocess_exec(
                    *launch.argv,
                    env=launch.env,
                    stdin=asyncio.subprocess.DEVNULL,
                    stderr=writing,
                    start_new_session=True,
                    preexec_fn=partial(tell_on_parent_death, signal.SIGKILL),
                )
            except OSError as error:
                self._tail = f"cannot start {launch.argv[0]!r}: {error.strerror}".encode()
                return str(error)
            finally:
                os.close(writing)
            relay = loop.create_task(self._relay(words))
            killed_before = self._place.killed_for_memory()
            try:
                code = await process.wait()
            finally:
                self._end_rest(process.pid)
            await asyncio.wait([relay], timeout=_LAST_WORDS_S)
            relay.cancel()
        # Whichever of its processes was killed, this one has ended with it.
        self._short_of_memory = self._place.killed_for_memory() > killed_before
        how = f"status {code}" if code >= 0 else signal.Signals(-code).name
        return f"{how}, {self._place.out_of_memory()}" if self._short_of_memory else how

    def _end_rest(self, pid: int) -> None:
        """End what it has started, in sessions of their own too: it would hold the pipe open."""
        _kill_group(pid)
        if self._launch.key:
            for each in _marked(f"handler_key={self._launch.key}"):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(each, signal.SIGKILL)

    async def _relay(self, words: asyncio.StreamReader) -> None:
        """Pass its error output on, and remember the end of it."""
        while data := await words.read(65536):
            data = _PROBED_EARLY.sub(b"", data)
            self._tail = (self._tail + data)[-_TAIL_BYTES:]
            with contextlib.suppress(OSError):  # it is not read any more; the handler goes on
                sys.stderr.buffer.write(data)
                sys.stderr.buffer.flush()


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _marked(variable: str) -> list[int]:
    """The processes that have inherited ``variable`` (Linux; elsewhere none is found)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone meanwhile, or another user's
            if variable.encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found
