"""What one server edge accepts, and the refusal of what it does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool import errors

if TYPE_CHECKING:
    from carpool.http.exchange import Exchange

__all__ = ["Limits", "Refused"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one server edge accepts.

    Attributes:
        head_bytes: largest request line and headers together (431 beyond).
        body_bytes: largest request body (413 beyond).
        idle_s: how long a connection may stay open between requests.
        read_s: how long a request may take to arrive, and a client to read its answer.
        connections: most connections at once (503 beyond); fewer where the process may not open
            so many files.
        held_bytes: most memory held for all clients together: requests not yet answered, whole or
            in parts, and answers not yet read; never less than two of the largest bodies. Beyond,
            uploads are refused (503), and clients that do not read are dropped.
    """

    head_bytes: int = 64 * 1024
    body_bytes: int = 64 * 1024 * 1024
    idle_s: float = 75.0
    read_s: float = 30.0
    connections: int = 4096
    held_bytes: int = 512 * 1024 * 1024


class Refused(Exception):
    """A request the edge will not read further; its connection is closed after the answer."""

    def __init__(self, status: int, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self._status = status
        self._retry_after_s = retry_after_s

    def answer(self, exchange: Exchange) -> None:
        """Tell the client."""
        after = [("retry-after", f"{self._retry_after_s:.0f}")] if self._retry_after_s else []
        exchange.reply(self._status, errors.body(self), headers=after)
