"""Shutdown of serving commands: the first SIGINT or SIGTERM drains, the second one kills."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from typing import TYPE_CHECKING, Any

from carpool import json_log

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Coro = Coroutine[Any, Any, None]

__all__ = ["pass_on", "say", "serve_until_interrupted"]

log = logging.getLogger(__name__)

_INTERRUPT_EXIT = 130


async def serve_until_interrupted(
    work: Coro, drain: Callable[[], Coro], close: Callable[[], Coro]
) -> int:
    """Run ``work`` until it ends, fails or is interrupted.

    Args:
        work: The serving coroutine.
        drain: Cleans up after it, unless there is another interrupt.
        close: Always called last.

    Returns:
        The exit code.
    """
    working = asyncio.get_running_loop().create_task(work)
    interrupts = _Interrupts(working)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await working
    finally:
        try:
            await interrupts.unless_again(drain())
        finally:
            await close()
    return _INTERRUPT_EXIT if interrupts.killed else 0


class _Interrupts:
    """Handler of SIGINT and SIGTERM: the first ends ``work``, the second ends its cleanup."""

    def __init__(self, work: asyncio.Task[None]) -> None:
        self._task: asyncio.Task[None] = work
        self.count = 0
        self.killed = False
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupted)

    async def unless_again(self, clearing_up: Coro) -> None:
        """Run ``clearing_up`` until it ends or another interrupt cancels it."""
        self._task = asyncio.get_running_loop().create_task(clearing_up)
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    def _interrupted(self) -> None:
        self.count += 1
        self.killed = self.count > 1
        say("killing" if self.killed else "draining; press Ctrl-C again to kill")
        self._task.cancel()


def say(text: str) -> None:
    """Write a line of progress to standard error, or to the log if that is JSON."""
    if json_log.is_json():
        log.info("%s", text)
    else:
        pass_on(text)


def pass_on(text: str) -> None:
    """Write a line to standard error unchanged, ignoring a closed pipe.

    The reader may be gone, as in ``carpool up 2>&1 | tee``, where Ctrl-C ends ``tee`` first.
    """
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
