"""Limits of a server edge, and the refusal of requests that exceed them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from carpool import wire

__all__ = [
    "CALL_BYTES_HELD",
    "HEADER_BYTES_HELD",
    "STALLED_S",
    "TOO_MUCH_HELD",
    "Limits",
    "Refused",
]

CALL_BYTES_HELD = 1024  # approximate size of the objects of one request
HEADER_BYTES_HELD = 128  # and of one header
TOO_MUCH_HELD = "too much memory is in use for other requests"
STALLED_S = 5.0  # without progress for this long, a client counts as idle

_ADDED_HEADERS = 10  # added by our own parts: four by the provider, and framing
_ADDED_BYTES = 2048


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a server edge.

    Attributes:
        head_bytes: Largest request line and headers together (431 beyond).
        headers: Most headers of one request (431 beyond): each takes more memory than its bytes.
        body_bytes: Largest request body (413 beyond).
        idle_s: How long a connection may stay open between requests.
        read_s: How long a request may take to arrive, and a client to read its response.
        connections: Most concurrent connections; fewer if the process may not open that many files.
            When one more arrives, the longest idle one is closed; if all are busy, the new one
            is refused (503). There is no limit by client address: behind a gateway
            all clients share one, and idle connections never keep a client out.
        held_bytes: Most memory held for all clients together: requests not yet answered, whole or
            in parts, and responses not yet read; never less than two of the largest bodies. Beyond,
            clients that do not read are dropped, the longest stalled first, and uploads are
            refused (503).
    """

    head_bytes: int = 64 * 1024
    headers: int = 100
    body_bytes: int = 64 * 1024 * 1024
    idle_s: float = 75.0
    read_s: float = 30.0
    connections: int = 4096
    held_bytes: int = 512 * 1024 * 1024

    def behind_proxy(self) -> Self:
        """Return these limits for an edge behind another Carpool edge, which adds headers.

        Without room for them, a head that just passes the first edge would fail at the second.
        """
        return replace(
            self,
            head_bytes=self.head_bytes + _ADDED_BYTES,
            headers=self.headers + _ADDED_HEADERS,
        )


class Refused(Exception):
    """Raised for a request that is not read further; the connection closes after the response.

    If another server may have capacity for it, ``retry_after_s`` is given, and the response says
    that the request was not begun, so that a proxy may send it there.
    """

    def __init__(self, status: int, reason: str, retry_after_s: int | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.headers: list[tuple[str, str]] = []
        if retry_after_s is not None:
            self.headers = [("retry-after", str(retry_after_s)), (wire.NOT_BEGUN_HEADER, "true")]
