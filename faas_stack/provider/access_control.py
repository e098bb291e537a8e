"""Decides which requests a provider accepts: which are public, and which need credentials.

Function calls are public and allowed from every web page: refusing them is up to the function.
Everything else, including a function's metrics, requires the credentials and one of this machine's
names as host; only ``/healthz`` needs no credentials. A change must declare that it is JSON, which
no web page can send to another site without a CORS preflight, which is never granted. A body
without a content type is accepted if no browser sent it, because OpenFaaS's gateway scales from
zero this way. Documents are limited in size, so that reading them does not delay calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool import errors
from carpool.http.hosts import Hosts
from faas_stack.provider.proxy import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from carpool.http.server import Exchange
    from faas_stack.provider.basic_auth_check import BasicAuth

__all__ = ["AccessControl", "is_call"]

_JSON = b"application/json"
_BY_BROWSERS = frozenset((b"origin", b"sec-fetch-site"))
_QUEUED_CALL = "/async-function/"
_DOCUMENT_BYTES = 2 * 1024 * 1024  # etcd, where Kubernetes keeps such documents, takes 1.5 MiB
_FORBIDDEN, _TOO_LARGE, _UNSUPPORTED, _NOT_IMPLEMENTED = 403, 413, 415, 501


class AccessControl:
    """Checks every request before it is handled.

    Args:
        listen: Where the provider listens.
        named: Further names of the provider.
        auth: Its credentials; None: none are required.
    """

    def __init__(self, listen: str, named: Iterable[str], auth: BasicAuth | None) -> None:
        self._hosts = Hosts([listen], named)
        self._auth = auth

    def refuse(self, exchange: Exchange) -> int | None:
        """Respond to a request that is refused and return the status. None if it is accepted."""
        if is_call(exchange.target):
            return None
        path = exchange.path
        if reason := self._hosts.refusal(exchange):
            return _refuse(exchange, _FORBIDDEN, reason)
        if path.startswith(_QUEUED_CALL):  # faas-cli sends no credentials with it
            call = PREFIX + path[len(_QUEUED_CALL) :]
            reason = f"{path!r}: calls are queued only by OpenFaaS's gateway; expected {call!r}"
            return _refuse(exchange, _NOT_IMPLEMENTED, reason)
        if path != "/healthz" and self._auth and not self._auth.admits(exchange):
            return self._auth.refuse(exchange)
        fault = _fault_of_body(exchange)
        return _refuse(exchange, *fault) if fault else None


def is_call(target: str) -> bool:
    """Return whether a function is called; requests for its metrics are not calls."""
    if not target.startswith(PREFIX):
        return False
    if "/metrics" not in target:  # nearly always
        return True
    rest = target[len(PREFIX) :].partition("?")[0].partition("/")[2]
    return rest != "metrics"


def _refuse(exchange: Exchange, status: int, reason: str) -> int:
    exchange.reply(status, errors.body(reason))
    return status


def _fault_of_body(exchange: Exchange) -> tuple[int, str] | None:
    if exchange.path.startswith("/system/") and exchange.body and not _is_json(exchange):
        given = (exchange.header(b"content-type") or b"").decode("latin-1")
        return _UNSUPPORTED, f"content-type = {given!r}: expected {_JSON.decode()}; curl: --json"
    if len(exchange.body) > _DOCUMENT_BYTES:
        size = len(exchange.body)
        return _TOO_LARGE, f"a body of {size} bytes: expected at most {_DOCUMENT_BYTES}"
    return None


def _is_json(exchange: Exchange) -> bool:
    content_type = exchange.header(b"content-type")
    if content_type is None:
        return not any(name in _BY_BROWSERS for name, _ in exchange.headers)
    return content_type.partition(b";")[0].strip().lower() == _JSON
