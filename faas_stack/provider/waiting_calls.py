"""Calls of one function that wait until a replica is ready for them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from carpool.errors import NotFound, Overloaded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from faas_stack.provider.replica import Replica

__all__ = ["WaitingCalls"]

_MOST = 4096  # waiting at once


class WaitingCalls:
    """Holds calls until there is a ready replica, or there can be none.

    Args:
        name: Name of the function.
        choose: Returns a replica that may be sent a call now; None if there is none.
        failing: Returns whether replicas keep failing to start, so that waiting is pointless.
        reason: Returns why none is ready, as far as callers may know; else empty.

    Attributes:
        removed: Whether the function was removed.
    """

    def __init__(
        self,
        name: str,
        choose: Callable[[], Replica | None],
        failing: Callable[[], bool],
        reason: Callable[[], str] = str,
    ) -> None:
        self._name = name
        self._choose = choose
        self._failing = failing
        self._reason = reason
        self._change = asyncio.Event()
        self._count = 0
        self.removed = False

    def wake(self) -> None:
        """Wake all waiters after a change."""
        self._change.set()
        self._change.clear()

    async def change(self) -> None:
        """Wait for the next change."""
        await self._change.wait()

    async def replica(self, patience_s: float, start: Callable[[], Awaitable[None]]) -> Replica:
        """Return a replica for a call, now or within ``patience_s`` seconds.

        Args:
            patience_s: Time limit.
            start: Starts the function if it is scaled to zero, which may also happen while the call
                waits.

        Raises:
            Overloaded: No replica became ready in time, none can become ready, or too many calls
                wait.
            NotFound: The function was removed in the meantime.
        """
        await start()
        if chosen := self._choose():
            return chosen
        try:
            async with asyncio.timeout(patience_s):
                return await self._next(start)
        except TimeoutError:
            message = f"function {self._name!r} has no ready replica after {patience_s:g} s"
            raise Overloaded(self._with_reason(message), 1.0) from None

    async def _next(self, start: Callable[[], Awaitable[None]]) -> Replica:
        while True:
            self._refuse_hopeless()
            self._count += 1
            try:
                await self._change.wait()
            finally:
                self._count -= 1
            await start()
            if chosen := self._choose():
                return chosen

    def _refuse_hopeless(self) -> None:
        if self.removed:
            message = f"function {self._name!r} was removed"
            raise NotFound(message)
        if self._failing():
            message = f"function {self._name!r} keeps failing to start; its logs say more"
            raise Overloaded(self._with_reason(message))
        if self._count >= _MOST:
            message = f"too many requests wait for function {self._name!r}"
            raise Overloaded(message, 1.0)

    def _with_reason(self, message: str) -> str:
        reason = self._reason()
        return f"{message}: {reason}" if reason else message
