"""From a batch to its answers: one POST to an instance, in the batch wire format."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, NamedTuple

from carpool import wire
from carpool.errors import DeadlineMissed, FunctionFault
from carpool.http.client import ConnectionFailed

if TYPE_CHECKING:
    from carpool.http.client import Response
    from sidecar.core.batch import Batch
    from sidecar.runtime.instances import Instance

__all__ = ["AnswerHead", "Answers", "Sending", "hung"]

_REASON_BYTES = 500
_GATEWAY_TIMEOUT = 504


class AnswerHead(NamedTuple):
    """What an answer's head says, ready to be replied with."""

    content_type: str
    headers: tuple[tuple[str, str], ...]


class Answers(NamedTuple):
    """A batch's answers in the order of its requests, and its padded and useful elements."""

    statuses: tuple[int, ...]
    heads: list[AnswerHead]
    bodies: list[memoryview]
    padding: tuple[int, int]


class Sending:
    """A batch on its way; where a connection is idle it is sent at once.

    Args:
        batch: as the batcher closed it.
        instance: where it goes.
    """

    def __init__(self, batch: Batch, instance: Instance) -> None:
        requests = batch.requests
        riders = [request.payload for request in requests]
        self._ids = [request.id for request in requests]
        self._message = wire.encode_request(
            self._ids,
            [request.deadline - batch.sent for request in requests],
            [rider.head for rider in riders],
            [rider.exchange.body for rider in riders],
        )
        self._instance = instance
        self._begun = instance.pool.begin("POST", "/", instance.headers, self._message)
        if self._begun:
            self._message = b""  # as large as the batch; the socket has it

    async def answers(self, timeout_s: float) -> Answers:
        """Wait for the answers.

        Args:
            timeout_s: how long the function may take.

        Raises:
            FunctionFault: no answer, or not one for each member.
            DeadlineMissed: not within ``timeout_s``.
        """
        timeout = timeout_s if timeout_s < math.inf else None
        try:
            if self._begun:
                response = await self._begun.response(timeout)
            else:
                instance = self._instance
                response = await instance.pool.request(
                    "POST", "/", instance.headers, self._message, timeout
                )
        except TimeoutError as error:
            msg = f"the function did not answer within {timeout_s:g} s"
            raise DeadlineMissed(msg) from error
        return _answers(response, self._ids)


def hung(response: Response) -> bool:
    """Whether what stands before the handler says that it did not answer a batch in time."""
    internal = response.header(b"x-openfaas-internal")
    return response.status == _GATEWAY_TIMEOUT and internal is not None


@functools.lru_cache(maxsize=256)
def _answer_head(head: bytes) -> AnswerHead:
    """The content type and the other headers of an answer; cached, as they repeat."""
    headers = wire.parse_head(head).headers
    content_type = next((value for name, value in headers if name == "content-type"), "")
    rest = tuple((name, value) for name, value in headers if name not in _FRAMING)
    return AnswerHead(content_type or "application/octet-stream", rest)


_FRAMING = frozenset(
    ("content-type", "content-length", "transfer-encoding", "connection", "keep-alive")
)


def _answers(response: Response, ids: list[int]) -> Answers:
    if hung(response):
        msg = "the function did not answer within exec_timeout"
        raise DeadlineMissed(msg)
    if response.header(b"x-openfaas-internal") == b"of-watchdog":
        msg = "the handler behind the watchdog died of the batch, or was not there"
        raise ConnectionFailed(msg, sent=True)
    if response.status != 200:  # noqa: PLR2004 - the one status of an answered batch
        reason = response.body[:_REASON_BYTES].decode("utf-8", "replace").strip()
        msg = f"the function failed the batch with status {response.status}: {reason or 'no text'}"
        raise FunctionFault(msg)
    columns = wire.decode_answer(response.body)
    if list(columns.ids) != ids:
        msg = f"the function answered {len(columns.ids)} items where {len(ids)} others were asked"
        raise FunctionFault(msg)
    bad = [status for status in columns.statuses if not 200 <= status <= 599]  # noqa: PLR2004
    if bad:
        msg = f"the function answered with status {bad[0]}: expected 200 to 599"
        raise FunctionFault(msg)
    padding = _padding(response.header(b"x-carpool-padding"))
    heads = [_answer_head(head) for head in columns.heads]
    return Answers(columns.statuses, heads, columns.bodies, padding)


def _padding(header: bytes | None) -> tuple[int, int]:
    """``PADDED/USEFUL`` as a handler with ragged inputs tells it."""
    padded, _, useful = (header or b"").partition(b"/")
    return (int(padded), int(useful)) if padded.isdigit() and useful.isdigit() else (0, 0)
