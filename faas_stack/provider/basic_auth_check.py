"""Basic authentication with the realm the gateway uses."""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import TYPE_CHECKING

from carpool import errors

if TYPE_CHECKING:
    from carpool.http.server import Exchange

__all__ = ["BasicAuth"]


class BasicAuth:
    """One user and password."""

    def __init__(self, user: str, password: str) -> None:
        self.expect(user, password)

    def expect(self, user: str, password: str) -> None:
        """Ask for these from now on."""
        self._expected = f"{user}:{password}".encode()

    def admits(self, exchange: Exchange) -> bool:
        """Whether the request carries the credentials; takes the same time for all wrong ones."""
        scheme, _, token = (exchange.header(b"authorization") or b"").partition(b" ")
        try:
            given = base64.b64decode(token.strip(), validate=True)
        except binascii.Error:
            given = b""
        return scheme.lower() == b"basic" and hmac.compare_digest(given, self._expected)

    def refuse(self, exchange: Exchange) -> int:
        """Answer that credentials are needed; returns the status."""
        challenge = ("www-authenticate", 'Basic realm="Restricted"')
        text = "expected user and password: faas-cli login, or curl -u; the provider prints where "
        text += "they are when it starts"
        exchange.reply(401, errors.body(text), headers=[challenge])
        return 401
