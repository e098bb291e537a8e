"""Data that was sent to a client and not yet read by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

__all__ = ["Backlog", "Memory"]


class Memory(Protocol):
    """Counts the memory that is held for all clients of a server.

    Attributes:
        loop: The server's event loop.
        held_bytes: Memory held now.
        most_held_bytes: Limit above which clients that do not read are dropped.
    """

    loop: asyncio.AbstractEventLoop
    held_bytes: int
    most_held_bytes: int

    def now(self) -> float:
        """Return the event-loop time in seconds."""

    def drop_stalled(self, stalled_s: float = 0.0) -> bool:
        """Drop clients that do not read until memory suffices; return whether it does."""


class Backlog:
    """Data that a client's socket has not taken; exists from the first such byte until the last.

    Meanwhile, everything written is held in memory.

    Args:
        memory: Counts the data.
        transport: Transport of the client.

    Attributes:
        stalled_since: Event-loop time at which the client was last seen to take data.
    """

    __slots__ = ("_bytes", "_left_bytes", "_memory", "_taken", "_transport", "stalled_since")

    def __init__(self, memory: Memory, transport: asyncio.Transport) -> None:
        self._memory = memory
        self._transport = transport
        self._bytes = 0
        self._left_bytes = transport.get_write_buffer_size()
        self._taken: asyncio.Future[None] | None = None
        self.stalled_since = memory.now()

    def add(self, size_bytes: int) -> None:
        """Count data just written; if memory is short, the longest stalled client is dropped."""
        memory = self._memory
        self._bytes += size_bytes
        memory.held_bytes += size_bytes
        if memory.held_bytes > memory.most_held_bytes:
            memory.drop_stalled()

    def moves(self, now: float) -> bool:
        """Return whether the client has taken any data since the last call."""
        left_bytes = self._transport.get_write_buffer_size()
        if left_bytes == self._left_bytes:
            return False
        self._left_bytes, self.stalled_since = left_bytes, now
        return True

    async def taken(self) -> None:
        """Wait until the client has taken all data or has disconnected."""
        if self._taken is None or self._taken.done():  # that waiter was cancelled
            self._taken = self._memory.loop.create_future()
        await self._taken

    def end(self) -> None:
        """Release the memory, as the client has taken all data or never will."""
        self._memory.held_bytes -= self._bytes
        self._bytes = 0
        if self._taken and not self._taken.done():
            self._taken.set_result(None)
