"""Basic authentication with the gateway's realm."""

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
    """Check of requests for one user and password."""

    def __init__(self, user: str, password: str) -> None:
        self.expect(user, password)

    def expect(self, user: str, password: str) -> None:
        """Require these credentials from now on."""
        self._expected = f"{user}:{password}".encode()

    def admits(self, exchange: Exchange) -> bool:
        """Return whether the request has the credentials, in constant time for all wrong ones."""
        scheme, _, token = (exchange.header(b"authorization") or b"").partition(b" ")
        try:
            given = base64.b64decode(token.strip(), validate=True)
        except binascii.Error:
            given = b""
        return scheme.lower() == b"basic" and hmac.compare_digest(given, self._expected)

    def refuse(self, exchange: Exchange) -> int:
        """Respond that credentials are required and return the status."""
        challenge = ("www-authenticate", 'Basic realm="Restricted"')
        text = "expected user and password: faas-cli login, or curl -u; the provider prints where "
        text += "they are when it starts"
        exchange.reply(401, errors.body(text), headers=[challenge])
        return 401
