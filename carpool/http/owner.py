"""What a connection needs of its server; no connection is known here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from carpool.http.backlog import Memory
from carpool.http.http_exchange import ServerState

if TYPE_CHECKING:
    import asyncio
    from collections import OrderedDict

    from carpool.http.backlog import Backlog
    from carpool.http.exchange import Exchange
    from carpool.http.intake import Intake
    from carpool.http.known_heads import KnownHeads
    from carpool.http.limits import Limits, Refused

__all__ = ["Overload", "Owner"]

C = TypeVar("C")


class Overload(Protocol):
    """Overload that an application reports to a provider, so that the provider refuses calls.

    Attributes:
        late_after_ms: How long a call may take.
    """

    late_after_ms: int

    def full(self) -> bool:
        """Return whether a call that came now would be refused."""

    def refused_before(self, count: int) -> None:
        """Count calls that a provider has refused."""


class Owner(ServerState, Memory, Protocol[C]):
    """Interface of the server that connections of the type ``C`` belong to.

    Attributes:
        connections: All admitted connections, ordered by last response: longest idle first.
        behind: Connections whose clients do not take what was sent, longest stalled first.
        overload: Tells whether calls would be refused; None if the application serves all.
    """

    limits: Limits
    heads: KnownHeads
    closing: bool
    quiet: asyncio.Future[None] | None
    connections: OrderedDict[C, None]
    behind: OrderedDict[C, Backlog]
    intake: Intake | None
    overload: Overload | None

    def add(self, connection: C) -> Refused | None:
        """Register a new connection; return the refusal if it is not admitted."""

    def remove(self, connection: C) -> None:
        """Remove a connection that has ended."""

    def asks(self, connection: C) -> bool:
        """Return whether its client has sent data that was not read yet."""

    def dispatch(self, exchange: Exchange) -> None:
        """Pass a whole request to the application."""

    def connection_changed(self) -> None:
        """Check whether a drain has ended, as a connection has no unanswered requests left."""
