"""The function's process is kept running; real processes that end at once."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
import uvloop

from sidecar.runtime.child_process import Child, Launch
from tests.waiting import wait_until, wait_until_async


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
                child.became_ready()

        launch = Launch((sys.executable, "-I", "-S", "-c", ""), os.environ, "", "")
        child = Child(launch, died)
        child.start()
        await wait_until_async(lambda: len(caplog.messages) >= 3, what="the third death")
        await child.stop(1.0)

    asyncio.run(run())
    assert waits == [message.rpartition("next in ")[2] for message in caplog.messages[:3]]


DAEMON = """
import signal, subprocess, sys
command = [sys.executable, "-S", "-c", "import signal; signal.pause()"]
daemon = subprocess.Popen(command, start_new_session=True, env={env})
print(daemon.pid, flush=True, file=open({file!r}, "a"))
"""


@pytest.mark.parametrize(("env", "ends"), [("None", True), ("{}", False)], ids=["marked", "not"])
def test_what_it_leaves_behind_does_not_hold_it_up(tmp_path: Path, env: str, *, ends: bool) -> None:
    """A daemon with its error output open: the next life begins, and the daemon is ended.

    Unless it has no environment to know it by; then the provider ends it, with the instance. Our
    end of its output is closed in any case, or each life would cost an open file.
    """
    file = tmp_path / "daemons"

    async def run() -> None:
        deaths: list[int] = []

        def died(_: str) -> None:
            deaths.append(sum(1 for _ in Path("/proc/self/fd").iterdir()))

        script = DAEMON.format(env=env, file=str(file))
        argv = (sys.executable, "-I", "-S", "-c", script)
        launch = Launch(argv, {**os.environ, "handler_key": "of-this-test"}, "", "of-this-test")
        child = Child(launch, died)
        child.start()
        await wait_until_async(lambda: len(deaths) >= 2, what="the second death")
        await child.stop(1.0)
        assert deaths[0] == deaths[1]

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
        child = Child(launch, lambda _: ended.set())
        child.start()
        await ended.wait()
        await child.stop(1.0)

    asyncio.run(run())
    said = capfd.readouterr().err.splitlines()
    assert [lines[1], lines[3]] == [line for line in said if line in lines]


def test_words_that_nobody_reads_stop_nothing() -> None:
    """A sidecar whose standard error is a closed pipe keeps its function running."""
    reading, writing = os.pipe()
    os.close(reading)

    async def run() -> None:
        deaths: list[str] = []
        script = "import sys; sys.stderr.write('x' * 1_000_000)"
        launch = Launch((sys.executable, "-I", "-S", "-c", script), dict(os.environ), "", "")
        child = Child(launch, deaths.append)
        child.start()
        await wait_until_async(lambda: len(deaths) >= 2, what="the second death")
        await child.stop(1.0)

    closed = io.TextIOWrapper(io.FileIO(writing, "w"))  # unbuffered
    with closed, patch.object(sys, "stderr", closed):
        uvloop.run(run())
