"""Background tasks: without a reference, the event loop may drop them before they end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["TaskSet"]


class TaskSet:
    """Keeps references to tasks until they end."""

    __slots__ = ("_running",)

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a background task."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def cancel(self) -> None:
        """Cancel all running tasks."""
        for task in self._running:
            task.cancel()

    async def join(self) -> None:
        """Wait until all tasks have ended in any way, including tasks started meanwhile."""
        while self._running:
            await asyncio.wait(self._running)
