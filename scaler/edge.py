"""The scaler's request listeners; what answers their requests may change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool import errors
from scaler.kubernetes.forwarding import Forwarding

if TYPE_CHECKING:
    from collections.abc import Callable

    from carpool.http.server import Application, Exchange

__all__ = ["Edge"]


def _starting(exchange: Exchange) -> None:
    text = errors.body("the scaler is starting; try again")
    exchange.reply(503, text, headers=[("retry-after", "1")])


class Edge:
    """The applications of the listeners, which stay open whether or not this scaler leads."""

    def __init__(self) -> None:
        self._all: Application = _starting
        self._syncs: Application = _starting
        self._forwarding: list[Forwarding] = []

    def all(self, exchange: Exchange) -> None:
        """Answer any request."""
        self._all(exchange)

    def syncs(self, exchange: Exchange) -> None:
        """Answer requests of sidecars only."""
        self._syncs(exchange)

    def serve(self, whole: Application, syncs: Application) -> None:
        """Let this scaler's applications answer from now on."""
        self._all, self._syncs = whole, syncs
        self.close()

    def forward(self, leader: Callable[[], str]) -> None:
        """Forward requests to the scaler at the leader's address from now on."""
        whole, syncs = Forwarding(leader), Forwarding(leader, syncs_alone=True)
        self._all, self._syncs, self._forwarding = whole, syncs, [whole, syncs]

    def close(self) -> None:
        """Close connections to other scalers."""
        for each in self._forwarding:
            each.close()
        self._forwarding = []
