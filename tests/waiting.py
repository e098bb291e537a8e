"""Functions that wait for a condition; tests never sleep for a guessed time.

`HANG_S` limits every wait of a test. It does not say how long a wait should take, but after what
time something hangs, however busy the machine is.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["HANG_S", "stop_process", "wait_until", "wait_until_async"]

HANG_S = 120.0
_POLL_S = 0.01


def wait_until(
    predicate: Callable[[], object], timeout_s: float = HANG_S, what: str = "the condition"
) -> None:
    """Return once ``predicate()`` is true; fail after ``timeout_s``, naming ``what``."""
    deadline = time.monotonic() + timeout_s
    never = threading.Event()
    while not predicate():
        _check(deadline, timeout_s, what)
        never.wait(_POLL_S)


async def wait_until_async(
    predicate: Callable[[], object], timeout_s: float = HANG_S, what: str = "the condition"
) -> None:
    """Like `wait_until`, but let the event loop run in between."""
    deadline = time.monotonic() + timeout_s
    while not predicate():
        _check(deadline, timeout_s, what)
        await asyncio.sleep(_POLL_S)


def stop_process(pid: int) -> None:
    """Send SIGSTOP to a process and return once all its threads have stopped.

    The signal takes effect when one of them gets a core; until then the others continue.
    """
    os.kill(pid, signal.SIGSTOP)
    states = [thread / "stat" for thread in Path(f"/proc/{pid}/task").iterdir()]
    wait_until(lambda: all(_state(each) == "T" for each in states), what="the process's stop")


def _state(stat: Path) -> str:
    """Return a thread's state, which follows the name in brackets."""
    try:
        return stat.read_text().rpartition(") ")[2][0]
    except OSError:
        return "T"  # it has ended


def _check(deadline: float, timeout_s: float, what: str) -> None:
    if time.monotonic() > deadline:
        message = f"{what} did not come true within {timeout_s:g} s"
        raise AssertionError(message)
