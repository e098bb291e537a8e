"""Access to a scaler: for holders of its token, by one of its names.

Sidecars may have a token of their function's own instead (`carpool.sync`).
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from carpool.sync import function_of

if TYPE_CHECKING:
    from carpool.http.hosts import Hosts
    from carpool.http.server import Exchange

__all__ = ["AccessTokens"]


class AccessTokens:
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

    def shown(self, exchange: Exchange) -> bytes:
        """The token that the caller has shown; empty if there is none."""
        scheme, _, token = (exchange.header(b"authorization") or b"").partition(b" ")
        return token if scheme == b"Bearer" else b""

    def function_of(self, shown: bytes) -> str | None:
        """The function that a token speaks for; empty: for all; None: it is none."""
        return function_of(shown, self.token) if self.token else ""

    def foreign(self, exchange: Exchange) -> str:
        """Why a caller is taken for a foreign web page; empty if it is not."""
        return self._hosts.refusal(exchange)
