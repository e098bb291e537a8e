"""A loop that keeps something running: a process of this machine, or a container."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Protocol

from carpool.backoff import Backoff
from carpool.errors import CarpoolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["Supervisor", "wait_within"]

log = logging.getLogger(__name__)


class Endable(Protocol):
    """A process or container that can be ended at any time."""

    async def terminate(self) -> None:
        """Ask it to end; it may finish its work."""
        ...

    async def kill(self) -> None:
        """End it at once, with everything it started."""
        ...


class Supervisor:
    """Runs something again whenever it has ended, until it is stopped.

    Args:
        run: one run, from its start to its end; returns its outcome in words. A `CarpoolError` that
            it raises ends the supervision.
        process: the process of the current run.
        on_end: called after each run that was not stopped, with its outcome and the seconds until
            the next one.
    """

    def __init__(
        self,
        run: Callable[[], Awaitable[str]],
        process: Endable,
        on_end: Callable[[str, float], None],
    ) -> None:
        self._run = run
        self._process = process
        self._on_end = on_end
        self._backoff = Backoff()
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def stopping(self) -> bool:
        """Whether there will be no further runs."""
        return self._stop.is_set()

    def start(self) -> None:
        """Start the first run."""
        self._task = asyncio.get_running_loop().create_task(self._keep_running())

    async def start_until(self, ready: asyncio.Event) -> None:
        """Start the first run, and wait for ``ready``.

        Raises:
            CarpoolError: the supervision ended before.
        """
        self.start()
        assert self._task  # noqa: S101 - it was started
        waiting = asyncio.get_running_loop().create_task(ready.wait())
        try:
            await asyncio.wait({self._task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if self._task.done():
            self._task.result()

    def became_ready(self) -> None:
        """Reset the backoff, so that the next pause is short."""
        self._backoff = Backoff()

    async def stop(self, grace_s: float) -> bool:
        """Ask the process to end, kill it after ``grace_s``; return whether it had to be killed."""
        self._stop.set()
        if self._task is None:
            return False
        await self._process.terminate()
        _, late = await asyncio.wait([self._task], timeout=grace_s)
        if late:
            await self._process.kill()
            await asyncio.wait(late)
        return bool(late)

    async def kill(self) -> None:
        """Kill the process and run it no more, without waiting for its end."""
        self._stop.set()
        await self._process.kill()

    async def leave(self) -> None:
        """Stop supervising, without ending the process."""
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _keep_running(self) -> None:
        loop = asyncio.get_running_loop()
        while not self.stopping:
            began_s = loop.time()
            outcome = await self._run_once()
            if self.stopping:
                return
            pause_s = self._backoff.after(loop.time() - began_s)
            self._on_end(outcome, pause_s)
            await wait_within(self._stop, pause_s)

    async def _run_once(self) -> str:
        """Run once; log unexpected errors, which do not prevent further runs."""
        try:
            return await self._run()
        except CarpoolError:
            raise
        except Exception as error:
            log.exception("a supervised process failed")
            await self._process.kill()
            return f"failed: {error!r}"


async def wait_within(event: asyncio.Event, timeout_s: float) -> None:
    """Wait until ``event`` is set, but at most ``timeout_s``."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
