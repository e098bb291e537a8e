"""Tasks that nothing waits for: the event loop alone would drop them before their end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["TaskSet"]


class TaskSet:
    """Keeps tasks until they have ended."""

    __slots__ = ("_running",)

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin work that continues by itself."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def cancel(self) -> None:
        """Cancel what still runs."""
        for task in self._running:
            task.cancel()

    async def join(self) -> None:
        """Wait until nothing runs, however it ends; what is started meanwhile, too."""
        while self._running:
            await asyncio.wait(self._running)
