"""What one server edge accepts, and the refusal of what it does not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

__all__ = ["Limits", "Refused"]

_ADDED_HEADERS = 10  # by our own parts on the way: four by the provider, and framing
_ADDED_BYTES = 2048


@dataclass(frozen=True, slots=True)
class Limits:
    """What one server edge accepts.

    Attributes:
        head_bytes: largest request line and headers together (431 beyond).
        headers: most headers of one request (431 beyond): each takes more memory than its bytes.
        body_bytes: largest request body (413 beyond).
        idle_s: how long a connection may stay open between requests.
        read_s: how long a request may take to arrive, and a client to read its answer.
        connections: most connections at once; fewer where the process may not open so many files.
            For one more, that which has been idle for longest is closed; if all are at work, the
            newcomer is refused (503). There is no limit by the client's address: behind a gateway
            all clients have the same one, and idle connections, however many, keep no client out.
        held_bytes: most memory held for all clients together: requests not yet answered, whole or
            in parts, and answers not yet read; never less than two of the largest bodies. Beyond,
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
        """The same for an edge behind another one of ours, which adds headers of its own.

        Without room for them, a head that just passes the first edge would fail at the second.
        """
        return replace(
            self,
            head_bytes=self.head_bytes + _ADDED_BYTES,
            headers=self.headers + _ADDED_HEADERS,
        )


class Refused(Exception):
    """A request the edge will not read further; its connection is closed after the answer."""

    def __init__(self, status: int, reason: str, retry_after_s: int | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.headers = [] if retry_after_s is None else [("retry-after", str(retry_after_s))]
