"""The provider's end of connections over which calls are sent in bundles (`call_frames`).

The calls of one event-loop iteration are sent together, up to `BUNDLE_CALLS` in a message, usually
on a single connection to the peer; it is opened with the first call, and replaced when the peer
asks for that or closes it. There is no task and no timer per call: its sender is notified of the
outcome, or cancels it.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from carpool import address as addresses
from carpool.http import call_frames
from carpool.http.call_connection import CallConnection, NotSwitched, Unsent, tell_failed
from carpool.http.client_connection import ConnectionFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from carpool.http.call_connection import Receiver

__all__ = ["Calls"]

_BEHIND_BYTES = 16 * 1024 * 1024  # bytes sent that the peer has not read
_NEVER = (404, 405, 426)  # statuses of a peer that will never accept such a connection


class Calls:
    """Sends calls to one address.

    Args:
        address: ``HOST:PORT`` or ``unix:PATH``.
        answer_bytes: Largest body of a response.
        connect_s: Time limit for connecting; None for the system's own.

    Attributes:
        refused: Whether the peer does not support such connections.
        now: Returns the event-loop time, which is the same throughout an iteration.
    """

    def __init__(self, address: str, answer_bytes: int, connect_s: float | None) -> None:
        self.address = address
        self.refused = False
        self._answer_bytes = answer_bytes
        self._connect_s = connect_s
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self._last_id = 0
        self._unsent: dict[int, Unsent] = {}
        self._unsent_bytes = 0
        self._due = False
        self._connection: CallConnection | None = None  # the one that takes calls
        self._connections: set[CallConnection] = set()
        self._connecting: asyncio.Task[None] | None = None

    @property
    def behind(self) -> bool:
        """Whether the peer is not reading what it was sent.

        Send no more calls then: those of callers that leave stay in memory until the peer reads.
        """
        connection = self._connection
        untaken_bytes = connection.transport.get_write_buffer_size() if connection else 0
        return self._unsent_bytes + untaken_bytes > _BEHIND_BYTES

    @property
    def full(self) -> bool:
        """Whether the peer has as many calls as it can answer in time."""
        connection = self._connection
        return connection is not None and connection.is_full(len(self._unsent) + 1)

    @property
    def hold_max_s(self) -> float:
        """Age up to which a call can be answered in time; infinite if never `full`."""
        return self._connection.hold_max_s if self._connection else math.inf

    def count_refused(self, count: int) -> None:
        """Have the peer count calls that were refused in its place."""
        if self._connection:
            self._connection.count_refused(count)

    def send(self, head: bytes, own_lines: bytes, body: bytes, receiver: Receiver) -> int:
        """Send a call at the end of this event-loop iteration at the latest; return its id.

        Args:
            head: First line and headers shared with other calls, in the form that
                `call_frames.call_head` reads.
            own_lines: Headers of this call alone.
            body: Body of the request.
            receiver: Notified of the outcome, in the next iteration at the earliest.
        """
        self._last_id += 1
        unsent = Unsent(head, call_frames.content(own_lines, body), receiver)
        self._unsent[self._last_id] = unsent
        self._unsent_bytes += len(head) + len(unsent.content)
        if not self._due:
            self._due = True
            self._loop.call_soon(self._end_of_iteration)
        elif self._connection and (
            len(self._unsent) >= call_frames.BUNDLE_CALLS
            or self._unsent_bytes >= call_frames.BUNDLE_BYTES
        ):
            self._flush(self._connection)
        return self._last_id

    def cancel(self, call_id: int) -> None:
        """Cancel a call whose caller has left; its receiver is not notified any more."""
        if unsent := self._unsent.pop(call_id, None):
            self._unsent_bytes -= len(unsent.head) + len(unsent.content)
            return
        for connection in self._connections:
            connection.cancel(call_id)

    def close(self) -> None:
        """Close all connections; pending calls fail."""
        if self._connecting:
            self._connecting.cancel()
        for connection in tuple(self._connections):
            connection.transport.abort()
        self._fail_unsent("the connection was closed before the request was sent")

    def _end_of_iteration(self) -> None:
        self._due = False
        if not self._unsent:
            return
        if self._connection:
            self._flush(self._connection)
        elif self._connecting is None:
            self._connecting = self._loop.create_task(self._connect())

    def _flush(self, connection: CallConnection) -> None:
        unsent, self._unsent = self._unsent, {}
        size_bytes, self._unsent_bytes = self._unsent_bytes, 0
        for bundle in (unsent,) if size_bytes < call_frames.BUNDLE_BYTES else _bundles(unsent):
            connection.send(bundle)

    async def _connect(self) -> None:
        """Open a connection and send the waiting calls, or fail them."""
        failure = ""
        try:
            self._connection = await self._switched()
            self._connections.add(self._connection)
        except NotSwitched as error:
            self.refused = error.status in _NEVER
            failure = f"no connection for bundled calls to {self.address}: {error}"
        except OSError as error:  # a TimeoutError is one
            why = error.strerror or str(error) or f"not within {self._connect_s} s"
            failure = f"cannot connect to {self.address}: {why}"
        finally:
            self._connecting = None
        if self._connection is None:
            self._fail_unsent(failure)
        elif self._unsent:  # their callers may have left
            self._flush(self._connection)

    async def _switched(self) -> CallConnection:
        """Return a new connection that accepts calls."""
        connection = None
        try:
            async with asyncio.timeout(self._connect_s):
                connection = await self._open()
                await connection.switched
            if connection.usable:
                taken, connection = connection, None
                return taken
            message = "the connection was closed at once"
            raise ConnectionResetError(message)
        finally:
            if connection:
                connection.transport.abort()

    async def _open(self) -> CallConnection:
        where = addresses.parse(self.address)
        if where.path:
            _, connection = await self._loop.create_unix_connection(self._new, where.path)
        else:
            _, connection = await self._loop.create_connection(self._new, where.host, where.port)
        return connection

    def _new(self) -> CallConnection:
        return CallConnection(self._loop, self._answer_bytes, self._retired, self._closed)

    def _retired(self, connection: CallConnection) -> None:
        """Stop using a connection for further calls."""
        if self._connection is connection:
            self._connection = None

    def _closed(self, connection: CallConnection) -> None:
        self._retired(connection)
        self._connections.discard(connection)

    def _fail_unsent(self, message: str) -> None:
        unsent, self._unsent, self._unsent_bytes = self._unsent, {}, 0
        for each in unsent.values():
            tell_failed(each.receiver, ConnectionFailed(message, sent=False))


def _bundles(unsent: dict[int, Unsent]) -> Iterator[dict[int, Unsent]]:
    """Yield the calls in bundles that each fit into a message, as many may have waited."""
    bundle: dict[int, Unsent] = {}
    size_bytes = 0
    for call_id, each in unsent.items():
        bundle[call_id] = each
        size_bytes += len(each.head) + len(each.content)
        if size_bytes >= call_frames.BUNDLE_BYTES:
            yield bundle
            bundle, size_bytes = {}, 0
    if bundle:
        yield bundle
