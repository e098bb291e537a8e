"""``/system/logs``: lines of a function as newline-delimited JSON, kept or as they come."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from carpool.errors import BadRequest, CarpoolError
from faas_stack.provider.deployment import split_name

if TYPE_CHECKING:
    from carpool.http.server import Exchange
    from faas_stack.provider.functions import Function, Functions
    from faas_stack.provider.logs import LogLine

__all__ = ["LogRoute"]

_TYPE = ("content-type", "application/x-ndjson")


class _Unprocessable(CarpoolError):
    """A parameter that cannot be read; OpenFaaS answers this with 422."""

    status = 422


class _Wanted(NamedTuple):
    """The parameters of a request for logs."""

    instance: str
    since: datetime | None
    tail: int
    follow: bool

    def has(self, line: LogLine) -> bool:
        """Whether ``line`` was asked for."""
        if self.instance and line.instance != self.instance:
            return False
        return self.since is None or line.timestamp >= self.since


class LogRoute:
    """Answers requests for logs; those that follow end with `close`."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._followers: set[asyncio.Task[None]] = set()

    def accept(self, exchange: Exchange, query: dict[str, str]) -> None:
        """Answer, now and while the client stays if it follows.

        Raises:
            CarpoolError: the parameters are wrong, or there is no such function.
        """
        if not query.get("name"):
            message = "name: expected a function's name in the query"
            raise BadRequest(message)
        function = self._functions.find(*split_name(query["name"], query.get("namespace", "")))
        wanted = _read(query)
        ring = function.replica_set.log
        lines = [line for line in ring.since(0) if wanted.has(line)]
        exchange.start(200, [_TYPE])
        exchange.write(_encode(lines[-wanted.tail :] if wanted.tail > 0 else lines, function))
        if not wanted.follow:
            exchange.end()
            return
        task = asyncio.get_running_loop().create_task(
            _follow(exchange, function, wanted, ring.next)
        )
        self._followers.add(task)
        task.add_done_callback(self._followers.discard)
        exchange.on_gone = lambda: _cancel(task)

    def close(self) -> None:
        """End the answers of those who follow."""
        for task in self._followers:
            task.cancel()


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


async def _follow(exchange: Exchange, function: Function, wanted: _Wanted, position: int) -> None:
    ring = function.replica_set.log
    try:
        while not ring.closed:
            await ring.more(position)
            lines = [line for line in ring.since(position) if wanted.has(line)]
            position = ring.next
            exchange.write(_encode(lines, function))
            await exchange.drained()
    finally:
        exchange.end()


def _encode(lines: list[LogLine], function: Function) -> bytes:
    deployment = function.deployment
    return b"".join(
        json.dumps(
            {
                "name": deployment.service,
                "namespace": deployment.namespace,
                "instance": line.instance,
                "timestamp": line.timestamp.isoformat(),
                "text": line.text,
            },
            ensure_ascii=False,
        ).encode()
        + b"\n"
        for line in lines
    )


def _read(query: dict[str, str]) -> _Wanted:
    since, tail = query.get("since", ""), query.get("tail", "")
    try:
        moment = datetime.fromisoformat(since) if since else None
        if moment and moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
    except ValueError:
        message = f"since = {since!r}: expected a time such as 2026-01-02T03:04:05Z"
        raise _Unprocessable(message) from None
    try:
        count = int(tail) if tail else 0
    except ValueError:
        message = f"tail = {tail!r}: expected a whole number"
        raise _Unprocessable(message) from None
    follow = query.get("follow", "").lower() in ("1", "t", "true")
    return _Wanted(query.get("instance", ""), moment, count, follow)
