"""Sidecar, watchdog and handler in a row, with the real of-watchdog if it is installed."""

from __future__ import annotations

import asyncio
import math
import os
import re
import shutil
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from carpool import wire
from carpool.http.client import Pool
from tests.ports import free_port, watchdog_port
from tests.sidecar.runtime.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sidecar.runtime.conftest import Sidecar, Start

FUNCTION = """
import os

def handle_batch(items):
    if any(item.bytes() == b"crash" for item in items):
        os._exit(3)
    return [item.bytes() for item in items]
"""


def watchdog_on_path(folder: Path) -> str:
    """Return a PATH with ``fwatchdog`` on it: the installed one or the stand-in."""
    if not shutil.which("fwatchdog"):
        script = ROOT / "tests" / "services" / "fwatchdog.py"
        tool = folder / "fwatchdog"
        tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}"\n')
        tool.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def behind_watchdog(folder: Path) -> dict[str, str]:
    """Return the environment of a sidecar whose handler is behind a watchdog."""
    (folder / "function").mkdir()
    (folder / "function" / "handler.py").write_text(FUNCTION)
    return {
        "PATH": watchdog_on_path(folder),
        "sidecar_watchdog": "on",
        "sidecar_watchdog_port": str(free_port()),
        "sidecar_handler_port": str(free_port()),
        "fprocess": f"{sys.executable} -m watchdog_plugin",
        "function_dir": str(folder / "function"),
        "TMPDIR": str(folder),
    }


def test_watchdog_refuses_batches_without_key_and_logs_no_batches(
    sidecar: Start, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Batches sent to the watchdog's port without the sidecar's key get status 403.

    The real watchdog logs requests without the header of the sidecar's batches and probes, so the
    log line of a forged request shows that those of the sidecar are left out on purpose.
    """
    env = behind_watchdog(tmp_path)
    head = wire.build_head("POST /", [])
    message = wire.encode_request([7], [math.inf], [head], [b"forged"])
    kind = (("content-type", wire.CONTENT_TYPE),)

    async def run() -> list[int]:
        async with sidecar(**env) as running:
            assert [200] * 9 == [(await running.ask("fine")).status for _ in range(9)]
            pool = Pool(f"127.0.0.1:{env['sidecar_watchdog_port']}")
            forged = (kind, wire.batch_headers("guessed"), ())
            answers = [await pool.request("POST", "/", each, message, 9.0) for each in forged]
            pool.close()
            return [answer.status for answer in answers]

    with watchdog_port():
        assert [403, 403, 403] == asyncio.run(run())
    logged = [line for line in capfd.readouterr().err.splitlines() if "POST /" in line]
    assert ["403"] * len(logged) == re.findall(r"POST / - (\d+)", "\n".join(logged))
    assert not shutil.which("fwatchdog") or logged


@pytest.mark.slow
def test_batches_pass_watchdog_and_function_recovers_from_its_death(
    sidecar: Start, tmp_path: Path
) -> None:
    """Batches pass the watchdog unchanged, and the function recovers from a kill or a crash."""
    env = behind_watchdog(tmp_path)

    async def run() -> None:
        async with sidecar(isolated=True, **env) as running:
            words = [f"{number}" * 200 for number in range(100)]
            answers = await asyncio.gather(*[running.ask(word) for word in words])
            assert words == [answer.body.decode() for answer in answers]
            os.kill(running.handler_pid(), signal.SIGKILL)
            assert 200 == (await running.ask("after")).status or await recovered(running)
            crash, neighbour = await asyncio.gather(running.ask("crash"), running.ask("fine"))
            assert 502 == crash.status
            assert (200, b"fine") == (neighbour.status, neighbour.body)

    asyncio.run(run())


async def recovered(running: Sidecar) -> bool:
    """Return whether the function answers again."""
    await running.until_ready()
    return (await running.ask("again")).status == 200
