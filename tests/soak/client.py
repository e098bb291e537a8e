"""A keep-alive connection of the soak, whose client may misbehave.

It uses plain streams instead of the sidecar's own client. Answers are read in the order of the
requests, so an additional one would be taken for the next request's and noticed.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from carpool import address as addresses
from tests.soak.asked import Answer, Kind

if TYPE_CHECKING:
    from random import Random

    from tests.soak.asked import Asked

__all__ = ["Line", "Lost"]

_PIECES = 6
_PAUSE_S = 0.01
_SIP_BYTES = 16 * 1024
_STAYS_MAX_S = 0.015  # before it leaves: about as long as most answers take


class Lost(Exception):
    """Raised when the connection ends, or has other bytes, in place of an answer."""


class Line:
    """A connection, opened when needed and reopened after it was lost.

    Args:
        address: The sidecar's address.
        rng: Decides when a client disconnects.
    """

    def __init__(self, address: str, rng: Random) -> None:
        self._where = addresses.parse(address)
        self._rng = rng
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, asked: Asked) -> Answer | None:
        """Send a request and return the answer; None if the client has disconnected before.

        Raises:
            Lost: There is no answer.
        """
        try:
            await self.send(asked)
            if asked.kind in (Kind.LEAVING, Kind.CUT_OFF):
                self.drop()
                return None
            return await self.receive(slowly=asked.kind is Kind.SIPPED)
        except (OSError, EOFError, ValueError) as error:
            self.drop()
            msg = f"no answer: {type(error).__name__} {error}"
            raise Lost(msg) from error

    async def send(self, asked: Asked) -> None:
        """Send the request at once, or in the ways of a misbehaving client."""
        _, writer = self._streams or await self._open()
        message = asked.head + asked.body
        if asked.kind is Kind.DRIBBLED:
            step = len(message) // _PIECES + 1
            for start in range(0, len(message), step):
                writer.write(message[start : start + step])
                await asyncio.sleep(_PAUSE_S)
        elif asked.kind is Kind.CUT_OFF:
            writer.write(message[: len(asked.head) + len(asked.body) // 2])
            await asyncio.sleep(0)
        else:
            writer.write(message)
            await writer.drain()
        if asked.kind is Kind.LEAVING:
            await asyncio.sleep(self._rng.uniform(0, _STAYS_MAX_S))

    async def receive(self, *, slowly: bool = False) -> Answer:
        """Return the next answer on this connection."""
        assert self._streams
        reader, _ = self._streams
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[:-2]
        version, status, _ = first.split(b" ", 2)
        if version != b"HTTP/1.1":
            msg = f"expected a status line, got {first[:80]!r}"
            raise ValueError(msg)
        headers = dict(line.split(b": ", 1) for line in lines)
        left = int(headers[b"content-length"])
        parts = []
        while slowly and left > _SIP_BYTES:
            parts.append(await reader.readexactly(_SIP_BYTES))
            left -= _SIP_BYTES
            await asyncio.sleep(_PAUSE_S / 4)
        parts.append(await reader.readexactly(left))
        if headers.get(b"connection") == b"close":
            await self.finish()
        return Answer(int(status), headers, b"".join(parts))

    async def finish(self) -> None:
        """Close the connection.

        Raises:
            ValueError: An answer came without a request.
        """
        if self._streams is None:
            return
        reader, writer = self._streams
        surplus = b""
        with contextlib.suppress(OSError):
            writer.write_eof()
            surplus = await reader.read(1024)
        self.drop()
        if surplus:
            msg = f"more than the answers: {surplus[:80]!r}"
            raise ValueError(msg)

    def drop(self) -> None:
        """Disconnect, whatever is in flight."""
        if self._streams:
            self._streams[1].transport.abort()
            self._streams = None

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        where = self._where
        if where.path:
            self._streams = await asyncio.open_unix_connection(where.path)
        else:
            self._streams = await asyncio.open_connection(where.host, where.port)
        return self._streams
