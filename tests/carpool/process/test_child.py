"""Child processes: their environment, how their end is reported, and complete removal."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import uvloop

from carpool.process import exit_status
from carpool.process.child import ChildProcess, Command, end
from carpool.process.lines import read_lines
from tests.waiting import HANG_S, wait_until, wait_until_async

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

PYTHON = (sys.executable, "-I", "-S", "-c")

SURROUNDINGS = """
import json, os, sys
print(json.dumps({
    "folder": os.getcwd(), "mine": os.environ.get("mine"), "PATH": "PATH" in os.environ,
    "leads": os.getsid(0) == os.getpid() == os.getpgid(0), "input": sys.stdin.read(),
    "open": sorted(int(fd) for fd in os.listdir("/proc/self/fd")),
}))
sys.stderr.write("and this\\n")
"""

# Starts a process in its group and one in a session of its own, then ignores SIGTERM.
DEAF = """
import os, signal, subprocess, sys
wait = [sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"]
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), subprocess.Popen(wait).pid, flush=True)
signal.pause()
"""


def runs(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("code", "words"),
    [(0, "status 0"), (3, "status 3"), (-9, "SIGKILL"), (-35, "signal 35")],
)
def test_exit_codes_in_words(code: int, words: str) -> None:
    """An exit code is described by its status, its signal's name, or the number of the signal."""
    assert words == exit_status.in_words(code)


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_child_gets_own_session_environment_and_folder(
    tmp_path: Path, loop: Callable[[Coroutine[None, None, None]], None]
) -> None:
    """A child gets a new session, the given environment and folder, no input and no open file."""
    lines: list[str] = []

    async def read(output: asyncio.StreamReader) -> None:
        lines.extend([line async for line in read_lines(output)])

    async def scene() -> None:
        process = ChildProcess()
        assert not process.pid
        with (tmp_path / "open").open("w") as file:
            os.set_inheritable(file.fileno(), True)  # noqa: FBT003
            command = Command((*PYTHON, SURROUNDINGS), {"mine": "1"}, tmp_path)
            await process.start(command, read, with_stdout=True)
            assert 0 == await process.ended()
        assert not process.pid

    loop(scene())
    (document,) = (json.loads(line) for line in lines if line != "and this")
    assert "and this" in lines
    assert document.pop("open")[:3] == [0, 1, 2]
    assert {
        "folder": str(tmp_path),
        "mine": "1",
        "PATH": False,
        "leads": True,
        "input": "",
    } == document


def test_missing_program_raises_file_not_found() -> None:
    """A missing program raises FileNotFoundError and leaves no file open."""

    async def read(output: asyncio.StreamReader) -> None:
        await output.read()

    async def scene() -> None:
        process = ChildProcess()
        for _ in range(2):
            with pytest.raises(FileNotFoundError):
                await process.start(Command(("/nonexistent",)), read)
            await process.terminate()
            await process.kill()
            await asyncio.sleep(0)  # the loop closes what was closed
            counts.append(len(os.listdir("/proc/self/fd")))  # noqa: PTH208

    counts: list[int] = []
    uvloop.run(scene())
    assert counts[0] == counts[1]


def test_process_is_killed_with_its_group() -> None:
    """Terminating or killing a process ends its group and calls the given function."""
    pids: list[int] = []
    rest: list[str] = []

    async def read(output: asyncio.StreamReader) -> None:
        async for line in read_lines(output):
            pids.extend(map(int, line.split()))

    async def scene() -> None:
        process = ChildProcess(lambda: rest.append("ended"))
        await process.start(Command((*PYTHON, DEAF)), read, with_stdout=True)
        await wait_until_async(lambda: pids, what="its words")
        assert process.pid == pids[0]
        await process.terminate()
        await process.kill()
        assert -signal.SIGKILL == await process.ended()

    uvloop.run(scene())
    wait_until(lambda: not any(map(runs, pids)), what="the end of both")
    assert rest == ["ended", "ended"]


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_process_stopped_while_starting_ends(
    loop: Callable[[Coroutine[None, None, None]], None],
) -> None:
    """A process ends if it is stopped in any iteration of the event loop while it starts."""

    async def read(output: asyncio.StreamReader) -> None:
        await output.read()

    async def scene(turns: int) -> None:
        process = ChildProcess()
        starting = asyncio.ensure_future(process.start(Command((*PYTHON, DEAF)), read))
        for _ in range(turns):
            await asyncio.sleep(0)
        await process.terminate()
        if starting.done():
            await process.kill()  # it may ignore the signal already
        await starting
        async with asyncio.timeout(HANG_S):
            assert await process.ended() in (-signal.SIGKILL, -signal.SIGTERM)

    for turns in range(1, 6):
        loop(scene(turns))


def test_session_is_signalled_with_grace_then_killed() -> None:
    """Each signal is sent with its grace period, then SIGKILL to all that is left."""
    with subprocess.Popen(
        (*PYTHON, DEAF), stdout=subprocess.PIPE, start_new_session=True, text=True
    ) as process:
        assert process.stdout
        pids = [int(word) for word in process.stdout.readline().split()]
        end(process, signal.SIGTERM, signal.SIGTERM, grace_s=0.01)
        assert -signal.SIGKILL == process.returncode
    wait_until(lambda: not any(map(runs, pids)), what="the end of both")
