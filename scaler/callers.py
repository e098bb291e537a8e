"""Who may speak with a scaler: holders of its token, by one of its names."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from carpool.http.hosts import Hosts
    from carpool.http.server import Exchange

__all__ = ["Callers"]


class Callers:
    """Tells callers that are let in from others.

    Args:
        token: What all must present; empty: nothing.
        hosts: The names that the scaler answers to.

    Attributes:
        token: The same, in bytes.
    """

    def __init__(self, token: str, hosts: Hosts) -> None:
        self.token = token.encode()
        self._hosts = hosts

    def admits(self, exchange: Exchange) -> bool:
        """Whether the caller has shown the token; takes the same time for all wrong ones."""
        shown = exchange.header(b"authorization") or b""
        return not self.token or hmac.compare_digest(shown, b"Bearer " + self.token)

    def foreign(self, exchange: Exchange) -> str:
        """Why a caller is taken for a stranger's web page; empty if it is not."""
        return self._hosts.refusal(exchange)
