"""The function's process is kept running; real processes that end at once."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import resource
import signal
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
import uvloop

from sidecar.runtime.handler_launch import Launch
from sidecar.runtime.handler_process import HandlerProcess
from tests.carpool.process.test_child import runs
from tests.waiting import wait_until, wait_until_async

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("was_ready", "waits"), [(True, ["0.1 s"] * 3), (False, ["0.1 s", "0.2 s", "0.4 s"])]
)
def test_a_process_that_has_served_is_started_again_soon(
    caplog: pytest.LogCaptureFixture, *, was_ready: bool, waits: list[str]
) -> None:
    """Only one that never becomes ready is waited for longer and longer."""

    async def run() -> None:
        def died(_reason: str) -> None:
            if was_ready:
                handler.became_ready()

        launch = Launch((sys.executable, "-I", "-S", "-c", ""), os.environ, "", "")
        handler = HandlerProcess(launch, died)
        handler.start()
        await wait_until_async(lambda: len(caplog.messages) >= 3, what="the third death")
        await handler.stop(1.0)

    asyncio.run(run())
    assert waits == [message.rpartition("next in ")[2] for message in caplog.messages[:3]]


def test_a_process_ended_by_a_signal_without_a_name_is_started_again() -> None:
    """As most real-time signals are."""

    async def run() -> None:
        deaths: list[str] = []
        script = "import os; os.kill(os.getpid(), 35)"
        launch = Launch((sys.executable, "-I", "-S", "-c", script), os.environ, "", "")
        handler = HandlerProcess(launch, deaths.append)
        handler.start()
        await wait_until_async(lambda: len(deaths) >= 2, 20, what="the second death")
        await handler.stop(1.0)

    uvloop.run(run())


def test_a_process_that_cannot_be_started_now_is_started_later() -> None:
    """While no file can be opened any more, as under a flood of connections."""

    async def run() -> None:
        deaths: list[str] = []
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

        def died(reason: str) -> None:
            deaths.append(reason)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

        argv = (sys.executable, "-I", "-S", "-c", "import signal; signal.pause()")
        handler = HandlerProcess(Launch(argv, os.environ, "", ""), died)
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
def test_what_it_leaves_behind_does_not_hold_it_up(tmp_path: Path, env: str, *, ends: bool) -> None:
    """A daemon with its error output open: the next run begins, and the daemon is ended.

    Unless it has no environment to know it by; then the provider ends it, with the instance. Our
    end of its output is closed in any case, or each run would cost an open file.
    """
    file = tmp_path / "daemons"

    async def run() -> None:
        deaths: list[int] = []

        def died(_: str) -> None:
            deaths.append(sum(1 for _ in Path("/proc/self/fd").iterdir()))

        script = DAEMON.format(env=env, file=str(file))
        argv = (sys.executable, "-I", "-S", "-c", script)
        key = f"of-this-test-{os.getpid()}"  # what another process marks so would be ended, too
        launch = Launch(argv, {**os.environ, "handler_key": key}, "", key)
        handler = HandlerProcess(launch, died)
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


def test_what_the_watchdog_says_of_probes_does_not_drown_the_function_s_words(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A line for each probe that came before the handler listened; every other line passes."""
    probed = (
        '2026/11/22 14:52:35 Upstream HTTP request error: Get "http://127.0.0.1:5000/_/ready": dial'
    )
    lines = [probed, "no model here", probed, 'Upstream HTTP request error: Post "http://x/": EOF']
    script = f"import sys; sys.stderr.write({chr(10).join((*lines, ''))!r})"

    async def run() -> None:
        ended = asyncio.Event()
        launch = Launch((sys.executable, "-I", "-S", "-c", script), os.environ, "", "")
        handler = HandlerProcess(launch, lambda _: ended.set())
        handler.start()
        await ended.wait()
        await handler.stop(1.0)

    asyncio.run(run())
    said = capfd.readouterr().err.splitlines()
    assert [lines[1], lines[3]] == [line for line in said if line in lines]


def test_output_that_is_not_read_stops_nothing() -> None:
    """A sidecar whose standard error is a closed pipe keeps its function running."""
    reading, writing = os.pipe()
    os.close(reading)

    async def run() -> None:
        deaths: list[str] = []
        script = "import sys; sys.stderr.write('x' * 1_000_000)"
        launch = Launch((sys.executable, "-I", "-S", "-c", script), dict(os.environ), "", "")
        handler = HandlerProcess(launch, deaths.append)
        handler.start()
        await wait_until_async(lambda: len(deaths) >= 2, what="the second death")
        await handler.stop(1.0)

    closed = io.TextIOWrapper(io.FileIO(writing, "w"))  # unbuffered
    with closed, patch.object(sys, "stderr", closed):
        uvloop.run(run())


def test_a_process_is_heard_and_its_earlier_end_is_told(tmp_path: Path) -> None:
    """What observes it may come later than its first run, which began before the event loop."""

    async def run() -> None:
        script = "import os, sys; sys.path[:0] = [sys.argv[1]]; "
        script += "from carpool.process.ready_notice import tell; tell(); os._exit(1)"
        argv = (sys.executable, "-c", script, str(ROOT))
        env = {**os.environ, "NOTIFY_SOCKET": f"{tmp_path}/ready.sock"}
        launch = Launch(argv, env, "", "", str(tmp_path))
        started = launch.start_early()
        assert started
        handler = HandlerProcess(launch, started=started)
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
def test_a_process_that_is_to_end_at_once_leaves_nothing(tmp_path: Path, *, began: bool) -> None:
    """As the settings turn out to be wrong, before it was taken over or while it is."""
    pids = tmp_path / "pids"

    async def run() -> None:
        argv = (
            "/bin/sh",
            "-c",
            f"sleep 3600 & echo $$ $! > {pids}.new; mv {pids}.new {pids}; wait",
        )
        launch = Launch(argv, os.environ, "", "")
        started = launch.start_early()
        assert started
        wait_until(pids.exists, what="the process")
        handler = HandlerProcess(launch, started=started)
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
