"""Request handling of a scaler that does not lead: it forwards requests to the leader.

So any number of scalers can share one address, all of them ready, and neither sidecars nor people
need to know which of them plans. While no leader is known, they are told to try again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from carpool import errors
from carpool.errors import NotFound
from carpool.http.client import AnswerTooLarge, ConnectionFailed, Pool
from carpool.sync import PATH
from carpool.task_set import TaskSet

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from carpool.http.server import Exchange

__all__ = ["Forwarding"]

_TIMEOUT_S = 5.0
_SYNC_TIMEOUT_S = 2.0  # less than a sidecar waits, so that it keeps this connection
_FORWARDED = (
    "carpool-forwarded"  # a header: once is enough, as two could take each other for the leader
)
_CONNECTIONS = 256
_OF_CONNECTIONS = frozenset((b"connection", b"content-length", b"keep-alive", b"te", b"trailer"))
_NOT_PASSED = _OF_CONNECTIONS | {b"transfer-encoding", b"upgrade", b"date", b"content-type"}


class Forwarding:
    """Forwards requests with their headers, as the leader authenticates the caller.

    Args:
        leader: Returns the leader's current address, ``HOST:PORT``; empty if unknown.
        syncs_alone: Forward requests of sidecars only.
    """

    def __init__(self, leader: Callable[[], str], *, syncs_alone: bool = False) -> None:
        self._leader = leader
        self._syncs_alone = syncs_alone
        self._pool: Pool | None = None
        self._tasks = TaskSet()

    def __call__(self, exchange: Exchange) -> None:
        """Answer one request."""
        if exchange.path == "/healthz" and not self._syncs_alone:
            exchange.reply(200, b"OK", "text/plain")
            return
        if self._syncs_alone and exchange.target != PATH:
            message = f"no route {exchange.path!r}: only {PATH} is served here"
            raise NotFound(message)
        task = self._tasks.start(self._answer(exchange))
        task.add_done_callback(partial(_ended, exchange))
        exchange.on_gone = task.cancel

    def close(self) -> None:
        """Close all connections."""
        self._tasks.cancel()
        if self._pool:
            self._pool.close()
            self._pool = None

    def _to_leader(self, exchange: Exchange) -> Pool:
        where = "" if exchange.header(_FORWARDED.encode()) else self._leader()
        if self._pool and self._pool.address != where:
            self._pool.close()
            self._pool = None
        if not where:
            message = "no scaler leads at the moment"
            raise ConnectionFailed(message, sent=False)
        self._pool = self._pool or Pool(where, max_connections=_CONNECTIONS)
        return self._pool

    async def _answer(self, exchange: Exchange) -> None:
        headers = [(_FORWARDED, "1"), *_decoded(exchange.headers, _OF_CONNECTIONS)]
        try:
            response = await self._to_leader(exchange).request(
                exchange.method, exchange.target, headers, exchange.body, _timeout_s(exchange)
            )
        except (AnswerTooLarge, ConnectionFailed, TimeoutError) as error:
            _try_again(exchange, f"does not answer ({error or 'in time'})")
            return
        content_type = (response.header(b"content-type") or b"application/json").decode("latin-1")
        exchange.reply(
            response.status, response.body, content_type, _decoded(response.headers, _NOT_PASSED)
        )


def _ended(exchange: Exchange, task: asyncio.Task[None]) -> None:
    if task.cancelled():  # this one leads now, or ends; the task may not even have begun
        _try_again(exchange, "has changed")


def _timeout_s(exchange: Exchange) -> float:
    return _SYNC_TIMEOUT_S if exchange.target == PATH else _TIMEOUT_S


def _try_again(exchange: Exchange, why: str) -> None:
    text = f"the leading scaler {why}; try again"
    exchange.reply(503, errors.body(text), headers=[("retry-after", "1")])


def _decoded(
    headers: Iterable[tuple[bytes, bytes]], without: frozenset[bytes]
) -> list[tuple[str, str]]:
    return [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in headers
        if name not in without
    ]
