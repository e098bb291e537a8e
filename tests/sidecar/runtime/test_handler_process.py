"""Restarts of the function's process, with real processes that end at once."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import resource
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
import uvloop

from sidecar.runtime.handler_launch import HandlerLaunch
from sidecar.runtime.handler_process import HandlerProcess
from tests.carpool.process.test_child import runs
from tests.waiting import wait_until, wait_until_async

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[3]


def _observed(launch: HandlerLaunch, on_exit: Callable[[str], None]) -> HandlerProcess:
    handler = HandlerProcess(launch)
    handler.observe(on_exit, lambda: None)
    return handler


@pytest.mark.parametrize(
    ("was_ready", "waits"), [(True, ["0.1 s"] * 3), (False, ["0.1 s", "0.2 s", "0.4 s"])]
)
def test_restart_delay_grows_only_for_process_that_never_was_ready(
    caplog: pytest.LogCaptureFixture, *, was_ready: bool, waits: list[str]
) -> None:
    """The restart delay grows only for a process that never becomes ready."""

    async def run() -> None:
        def died(_reason: str) -> None:
            if was_ready:
                handler.became_ready()

        launch = HandlerLaunch((sys.executable, "-I", "-S", "-c", ""), os.environ, "", "")
        handler = _observed(launch, died)
        handler.start()
        await wait_until_async(lambda: len(caplog.messages) >= 3, what="the third death")
        await handler.stop(1.0)

    asyncio.run(run())
    assert waits == [message.rpartition("starting again in ")[2] for message in caplog.messages[:3]]


def test_process_killed_by_unnamed_signal_is_restarted() -> None:
    """A process killed by a real-time signal without a name is restarted."""

    async def run() -> None:
        deaths: list[str] = []
        script = "import os; os.kill(os.getpid(), 35)"
        launch = HandlerLaunch((sys.executable, "-I", "-S", "-c", script), os.environ, "", "")
        handler = _observed(launch, deaths.append)
        handler.start()
        await wait_until_async(lambda: len(deaths) >= 2, 20, what="the second death")
        await handler.stop(1.0)

    uvloop.run(run())


def test_failed_start_is_retried_later() -> None:
    """A start that fails for lack of file descriptors is tried again later."""

    async def run() -> None:
        deaths: list[str] = []
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

        def died(reason: str) -> None:
            deaths.append(reason)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

        argv = (sys.executable, "-I", "-S", "-c", "import signal; signal.pause()")
        handler = _observed(HandlerLaunch(argv, os.environ, "", ""), died)
        handler.start()
        first_free = os.dup(0)
        os.close(first_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (first_free, hard))
        try:
            await wait_until_async(lambda: deaths, 20, what="the failed start")
            await wait_until_async(lambda: handler.pid, 20, what="the next start")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        await handler.stop(1.0)

    uvloop.run(run())


DAEMON = """
import signal, subprocess, sys
command = [sys.executable, "-S", "-c", "import signal; signal.pause()"]
daemon = subprocess.Popen(command, start_new_session=True, env={env})
print(daemon.pid, flush=True, file=open({file!r}, "a"))
"""


@pytest.mark.parametrize(("env", "ends"), [("None", True), ("{}", False)], ids=["marked", "not"])
def test_leftover_daemon_does_not_delay_restart(tmp_path: Path, env: str, *, ends: bool) -> None:
    """A daemon that keeps the error output open does not delay the next run, and is ended.

    A daemon without an environment to recognize it by is left to the provider, which ends it with
    the instance. The sidecar's end of its output is closed in any case, or each run would leak an
    open file.
    """
    file = tmp_path / "daemons"

    async def run() -> None:
        deaths: list[int] = []

        def died(_: str) -> None:
            deaths.append(sum(1 for _ in Path("/proc/self/fd").iterdir()))

        script = DAEMON.format(env=env, file=str(file))
        argv = (sys.executable, "-I", "-S", "-c", script)
        key = f"of-this-test-{os.getpid()}"  # what another process marks so would be ended, too
        launch = HandlerLaunch(argv, {**os.environ, "handler_key": key}, "", key)
        handler = _observed(launch, died)
        handler.start()
        await wait_until_async(lambda: len(deaths) >= 2, what="the second death")
        await handler.stop(1.0)
        assert deaths[1] <= deaths[0]  # other tests' files may be collected meanwhile

    try:
        uvloop.run(run())
        daemons = file.read_text().split()
        assert len(daemons) >= 2
        if ends:
            wait_until(lambda: not any(Path("/proc", pid).exists() for pid in daemons))
    finally:
        for pid in file.read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def test_watchdog_probe_errors_are_dropped_from_output(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The watchdog's lines on failed probes are dropped, and every other line passes."""
    probed = (
        '2026/11/22 14:52:35 Upstream HTTP request error: Get "http://127.0.0.1:5000/_/ready": dial'
    )
    lines = [probed, "no model here", probed, 'Upstream HTTP request error: Post "http://x/": EOF']
    script = f"import sys; sys.stderr.write({chr(10).join((*lines, ''))!r})"

    async def run() -> None:
        ended = asyncio.Event()
        launch = HandlerLaunch((sys.executable, "-I", "-S", "-c", script), os.environ, "", "")
        handler = _observed(launch, lambda _: ended.set())
        handler.start()
        await ended.wait()
        await handler.stop(1.0)

    asyncio.run(run())
    said = capfd.readouterr().err.splitlines()
    assert [lines[1], lines[3]] == [line for line in said if line in lines]


def test_closed_stderr_does_not_stop_restarts() -> None:
    """A sidecar whose standard error is a closed pipe keeps restarting its function."""
    reading, writing = os.pipe()
    os.close(reading)

    async def run() -> None:
        deaths: list[str] = []
        script = "import sys; sys.stderr.write('x' * 1_000_000)"
        launch = HandlerLaunch((sys.executable, "-I", "-S", "-c", script), dict(os.environ), "", "")
        handler = _observed(launch, deaths.append)
        handler.start()
        await wait_until_async(lambda: len(deaths) >= 2, what="the second death")
        await handler.stop(1.0)

    closed = io.TextIOWrapper(io.FileIO(writing, "w"))  # unbuffered
    with closed, patch.object(sys, "stderr", closed):
        uvloop.run(run())


def test_observer_added_late_is_notified_of_earlier_exit(tmp_path: Path) -> None:
    """An observer added late still gets the end of a first run from before the event loop."""

    async def run() -> None:
        script = "import os, sys; sys.path[:0] = [sys.argv[1]]; "
        script += "from carpool.process.ready_notice import tell; tell(); os._exit(1)"
        argv = (sys.executable, "-c", script, str(ROOT))
        env = {**os.environ, "NOTIFY_SOCKET": f"{tmp_path}/ready.sock"}
        launch = HandlerLaunch(argv, env, "", "", str(tmp_path))
        started = launch.start_early()
        assert started
        handler = HandlerProcess(launch, started)
        handler.start()
        await wait_until_async(lambda: handler.pid not in (0, started.pid), what="the second run")
        ends: list[str] = []
        heard = asyncio.Event()
        handler.observe(ends.append, heard.set)
        await wait_until_async(lambda: heard.is_set() and len(ends) >= 2, what="the next run")
        await handler.stop(1.0)

    asyncio.run(run())
    assert not tmp_path.exists()


@pytest.mark.parametrize("began", [False, True])
def test_process_stopped_during_takeover_leaves_no_child(tmp_path: Path, *, began: bool) -> None:
    """A process stopped before or during its takeover leaves no child and no process behind."""
    pids = tmp_path / "pids"

    async def run() -> None:
        argv = (
            "/bin/sh",
            "-c",
            f"sleep 3600 & echo $$ $! > {pids}.new; mv {pids}.new {pids}; wait",
        )
        launch = HandlerLaunch(argv, os.environ, "", "")
        started = launch.start_early()
        assert started
        wait_until(pids.exists, what="the process")
        handler = HandlerProcess(launch, started)
        handler.start()
        if began:
            await asyncio.sleep(0)
        await handler.stop(0.0)

    uvloop.run(run())
    left = [int(pid) for pid in pids.read_text().split()]
    try:
        wait_until(lambda: not any(map(runs, left)), what="the end of the process and its child")
    finally:
        for pid in filter(runs, left):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        (
            "handler: cannot start: no model\nTraceback\nKeyError: 1",
            "handler: cannot start: no model",
        ),
        ("one\nKeyError: 1", "KeyError: 1"),
        ("", "it exits without a message"),
    ],
)
def test_reason_is_the_handlers_own(printed: str, reason: str) -> None:
    """Of a process that does not start, callers get what the handler said, not what ended it."""

    async def run() -> str:
        lines = f"{printed}\n2026/11/28 17:13:38 Forked function has terminated: exit status 1\n"
        script = f"import sys; sys.stderr.write({lines!r})"
        launch = HandlerLaunch((sys.executable, "-I", "-S", "-c", script), os.environ, "", "")
        handler = HandlerProcess(launch)
        handler.start()
        await wait_until_async(lambda: handler.failing != "", what="the third death")
        await handler.stop(1.0)
        return handler.failing

    assert reason == asyncio.run(run())
