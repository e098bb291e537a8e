"""``/system/logs``: log lines of a function as newline-delimited JSON, stored or streamed."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from carpool.errors import BadRequest, CarpoolError
from faas_stack.provider.deployment import split_name
from faas_stack.provider.logs import LogQuery

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from carpool.http.server import Exchange
    from faas_stack.provider.function import Function
    from faas_stack.provider.logs import LogLine
    from faas_stack.provider.orchestrator import Orchestrator

__all__ = ["LogRoute"]

_TYPE = ("content-type", "application/x-ndjson")


class _Unprocessable(CarpoolError):
    """Raised for a parameter that cannot be read; the status is 422, as in OpenFaaS."""

    status = 422


class LogRoute:
    """Responds to requests for logs; those that follow last until `close`."""

    def __init__(self, orchestrator: Orchestrator[Any]) -> None:
        self._orchestrator = orchestrator
        self._answers: set[asyncio.Task[None]] = set()

    def accept(self, exchange: Exchange, query: dict[str, str]) -> None:
        """Start to respond; if the query follows, continue until the client disconnects.

        Raises:
            CarpoolError: The parameters are invalid, or there is no such function.
        """
        if not query.get("name"):
            message = "name: expected a function's name in the query"
            raise BadRequest(message)
        default = self._orchestrator.default_namespace
        name, namespace = split_name(query["name"], query.get("namespace", ""), default)
        function: Function = self._orchestrator.find(name, namespace)
        batches = self._orchestrator.lines(function, _read(query))
        exchange.start(200, [_TYPE])
        task = asyncio.get_running_loop().create_task(_answer(exchange, function, batches))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)
        exchange.on_gone = task.cancel

    def close(self) -> None:
        """End the responses that are still streaming."""
        for task in self._answers:
            task.cancel()


async def _answer(
    exchange: Exchange, function: Function, batches: AsyncIterator[Sequence[LogLine]]
) -> None:
    try:
        async for lines in batches:
            exchange.write(_encode(lines, function))
            await exchange.drained()
    finally:
        exchange.end()


def _encode(lines: Sequence[LogLine], function: Function) -> bytes:
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


def _read(query: dict[str, str]) -> LogQuery:
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
    return LogQuery(query.get("instance", ""), moment, count, follow)
