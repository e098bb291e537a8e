"""Access control of a scaler: callers need its token and must use one of its host names.

Sidecars may use a token of their function instead (`carpool.sync`).
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
    """Decides which callers are admitted.

    Args:
        token: Token that every caller must present; if empty, none is required.
        hosts: Host names that the scaler answers to.

    Attributes:
        token: The token as bytes.
    """

    def __init__(self, token: str, hosts: Hosts) -> None:
        self.token = token.encode()
        self._hosts = hosts

    def admits(self, exchange: Exchange) -> bool:
        """Return whether the caller has presented the token, comparing in constant time."""
        shown = exchange.header(b"authorization") or b""
        return not self.token or hmac.compare_digest(shown, b"Bearer " + self.token)

    def shown(self, exchange: Exchange) -> bytes:
        """Return the token that the caller has presented; empty if there is none."""
        scheme, _, token = (exchange.header(b"authorization") or b"").partition(b" ")
        return token if scheme == b"Bearer" else b""

    def function_of(self, shown: bytes) -> str | None:
        """Return the function that a token is valid for: empty for all, None if invalid."""
        return function_of(shown, self.token) if self.token else ""

    def foreign(self, exchange: Exchange) -> str:
        """Return why a request is taken to come from a foreign web page; empty if it does not."""
        return self._hosts.refusal(exchange)
