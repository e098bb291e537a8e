"""What one client was sent and has not taken yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

__all__ = ["Backlog", "Memory"]


class Memory(Protocol):
    """Where the memory that is held for all clients of a server is counted.

    Attributes:
        loop: the server's event loop.
        held_bytes: held now.
        most_held_bytes: beyond this, clients that do not read are dropped.
    """

    loop: asyncio.AbstractEventLoop
    held_bytes: int
    most_held_bytes: int

    def now(self) -> float:
        """Event-loop time, seconds."""

    def drop_stalled(self, stalled_s: float = 0.0) -> bool:
        """Drop clients that do not read until memory suffices; whether it does."""


class Backlog:
    """There is one from the first byte that a client's socket did not take, until it took the last.

    So long everything that was written meanwhile is in memory.

    Args:
        memory: counts it.
        transport: of the client.

    Attributes:
        stalled_since: when the client was last seen to take something, event-loop time.
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
        """Count what was just written; where memory is short, the longest stalled client goes."""
        memory = self._memory
        self._bytes += size_bytes
        memory.held_bytes += size_bytes
        if memory.held_bytes > memory.most_held_bytes:
            memory.drop_stalled()

    def moves(self, now: float) -> bool:
        """Whether the client has taken anything since this was last asked."""
        left_bytes = self._transport.get_write_buffer_size()
        if left_bytes == self._left_bytes:
            return False
        self._left_bytes, self.stalled_since = left_bytes, now
        return True

    async def taken(self) -> None:
        """Wait until the client has taken everything, or has gone."""
        if self._taken is None or self._taken.done():  # that waiter was cancelled
            self._taken = self._memory.loop.create_future()
        await self._taken

    def end(self) -> None:
        """The client has taken everything, or never will."""
        self._memory.held_bytes -= self._bytes
        self._bytes = 0
        if self._taken and not self._taken.done():
            self._taken.set_result(None)
