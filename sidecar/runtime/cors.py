"""Cross-origin requests: which web pages of other origins may call a function.

A browser first asks by ``OPTIONS`` (a preflight) before it sends a page's request that a form could
not send, and shows the page no response that does not name its origin. Credentials are never
allowed: functions know none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from carpool.http.server import Application, Exchange

__all__ = ["Cors", "around"]

_ANY = b"*"
_NOTHING: tuple[tuple[str, str], ...] = ()
_EXPOSED = ("access-control-expose-headers", "*")
_ASKED_METHOD = b"access-control-request-method"
_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
_NAMES = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z, ]{1,2048}").fullmatch
_REMEMBERED_S = 7200  # the longest time that all browsers support


def around(app: Application, origins: Collection[str]) -> Application:
    """Return ``app`` open to these origins, such as ``https://app.example.com``; ``*`` for all."""
    return Cors(app, origins) if origins else app


class Cors:
    """Answers preflights itself, and adds the origin to other responses.

    Args:
        app: application that answers all other requests.
        origins: origins that may call it.
    """

    def __init__(self, app: Application, origins: Collection[str]) -> None:
        self._app = app
        self._origins = {origin.encode("latin-1", "replace") for origin in origins}

    def __call__(self, exchange: Exchange) -> None:
        """Answer a preflight, or pass the exchange on to the application."""
        own = exchange.target.startswith("/_/") or exchange.target == "/metrics"  # not for pages
        if not own and exchange.method == "OPTIONS" and exchange.header(_ASKED_METHOD) is not None:
            self._preflight(exchange)
            return
        if not own:
            self._admit(exchange)
        self._app(exchange)

    def _admit(self, exchange: Exchange) -> bool:
        """Add headers that say whether the page may read the response; return whether it may."""
        if _ANY in self._origins:
            origin, varies = _ANY, _NOTHING
        else:
            origin, varies = exchange.header(b"origin") or b"", (("vary", "origin"),)
        allowed = origin in self._origins
        headers = (("access-control-allow-origin", origin.decode("latin-1")), _EXPOSED)
        exchange.added = (*varies, *headers) if allowed else varies
        return allowed

    def _preflight(self, exchange: Exchange) -> None:
        headers = [("access-control-max-age", str(_REMEMBERED_S))]
        if self._admit(exchange):
            headers.append(("access-control-allow-methods", _METHODS))
            names = exchange.header(b"access-control-request-headers") or b""
            if _NAMES(names):
                headers.append(("access-control-allow-headers", names.decode("latin-1")))
        exchange.reply(204, content_type="", headers=headers)
