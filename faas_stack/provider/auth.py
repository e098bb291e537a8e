"""Basic authentication of ``/system/``, with the files and the realm the gateway uses."""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import TYPE_CHECKING

from carpool import errors
from carpool.basic_auth import credentials

if TYPE_CHECKING:
    from pathlib import Path

    from carpool.http.server import Exchange

__all__ = ["BasicAuth"]


class BasicAuth:
    """One user and password."""

    def __init__(self, user: str, password: str) -> None:
        self._expected = f"{user}:{password}".encode()

    @classmethod
    def from_folder(cls, folder: Path) -> BasicAuth:
        """Read ``basic-auth-user`` and ``basic-auth-password`` from ``folder``.

        Raises:
            ConfigError: a file is missing or empty.
        """
        return cls(*credentials(folder))

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
        exchange.reply(401, errors.body("invalid credentials"), headers=[challenge])
        return 401
