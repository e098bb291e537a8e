"""Heads of whole requests that have been read; a repeated head is not parsed again.

A client sends the same head with every request, and parsing it takes longer than everything else
that the edge does for a request. Only plain heads are kept: of one request that is the whole of a
read, in HTTP/1.1, on a connection that stays open, with a body as long as ``Content-Length`` says.
The parser would read the same bytes in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.http.exchange import KnownHead

if TYPE_CHECKING:
    from carpool.http.exchange import Exchange

__all__ = ["KnownHeads"]

_KEPT = 256
_LARGEST = 1024  # larger ones are rare, and do not repeat
_END = b"\r\n\r\n"
_SPECIAL = frozenset((b"transfer-encoding", b"expect", b"upgrade"))


class KnownHeads:
    """The heads sent by the clients of one server."""

    __slots__ = ("_known", "get")

    def __init__(self) -> None:
        self._known: dict[bytes, KnownHead] = {}
        self.get = self._known.get  # what a head says; None: it is not known

    def __len__(self) -> int:
        return len(self._known)

    def keep(self, data: bytes, exchange: Exchange, body_bytes: int) -> None:
        """Remember the head of ``exchange`` if it was read from ``data`` and is plain."""
        end = data.find(_END) + len(_END)
        if end + body_bytes != len(data) or end > _LARGEST:
            return
        if not (exchange.keep_alive and exchange.chunked):
            return
        if not _SPECIAL.isdisjoint([name for name, _ in exchange.headers]):
            return
        if len(self._known) >= _KEPT:
            self._known.clear()
        self._known[data[:end]] = KnownHead(
            exchange.method, exchange.target, exchange.headers, body_bytes
        )
