"""Sidecar, watchdog and handler in a row: the real of-watchdog where there is one."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
from typing import TYPE_CHECKING

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


def free_port() -> str:
    """A port that nobody has."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return str(taken.getsockname()[1])


def watchdog_on_path(folder: Path) -> str:
    """A PATH with ``fwatchdog`` on it: the machine's own, or the stand-in."""
    if not shutil.which("fwatchdog"):
        script = ROOT / "tests" / "services" / "fwatchdog.py"
        tool = folder / "fwatchdog"
        tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}"\n')
        tool.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_batches_pass_the_watchdog_and_its_death_is_survived(
    sidecar: Start, tmp_path: Path
) -> None:
    """Chunked batches, answers equal; watchdog killed or handler crashed: the function recovers."""
    (tmp_path / "function").mkdir()
    (tmp_path / "function" / "handler.py").write_text(FUNCTION)
    env = {
        "PATH": watchdog_on_path(tmp_path),
        "sidecar_watchdog": "on",
        "sidecar_watchdog_port": free_port(),
        "sidecar_handler_port": free_port(),
        "fprocess": f"{sys.executable} -m watchdog_plugin",
        "function_dir": str(tmp_path / "function"),
        "TMPDIR": str(tmp_path),
    }

    async def run() -> None:
        async with sidecar(**env) as running:
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
    """Whether the function answers again."""
    await running.until_ready()
    return (await running.ask("again")).status == 200
