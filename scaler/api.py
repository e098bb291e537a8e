"""The scaler's HTTP entry point: answers syncs of sidecars and passes read requests on.

    POST /v1/sync              sidecars (`scaler.sync_api`)
    GET  /healthz              whatever starts the scaler
    GET  everything else       people and programs (`scaler.web.app`)

If a token is configured, every request except for ``/healthz`` and the page's files must present
it. Requests under a host name that is not the scaler's, or from another site's page, are refused.
Sidecars may use any host name, as no such page has the token that they present.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool import errors
from carpool.sync import PATH
from scaler.dashboard.sampler import FILES

if TYPE_CHECKING:
    from carpool.http.server import Exchange
    from scaler.sync_api import SyncApi
    from scaler.web.server import Readers

__all__ = ["Api"]


class Api:
    """The HTTP application of the scaler's entry point.

    Args:
        sync: Answers sidecars.
        readers: Answer all other requests.
    """

    def __init__(self, sync: SyncApi, readers: Readers) -> None:
        self._sync = sync
        self._readers = readers

    def __call__(self, exchange: Exchange) -> None:
        """Answer one request."""
        callers, is_sync = self._sync.callers, exchange.target == PATH
        if not (is_sync and callers.token) and (reason := callers.foreign(exchange)):
            exchange.reply(403, errors.body(reason))
            return
        if is_sync:
            self._sync.answer(exchange)
            return
        path = exchange.path
        if exchange.method not in ("GET", "HEAD"):
            allowed = [("allow", "GET, HEAD")]
            exchange.reply(
                405, errors.body(f"method {exchange.method} is not allowed"), headers=allowed
            )
        elif path == "/healthz":
            exchange.reply(200, b"OK", "text/plain")
        elif path in FILES:
            self._readers.pass_on(exchange, needs_snapshot=False)
        elif not callers.admits(exchange):
            text = errors.body("expected 'Authorization: Bearer' and the scaler's token")
            exchange.reply(401, text, headers=[("www-authenticate", "Bearer")])
        else:
            self._readers.pass_on(exchange)
