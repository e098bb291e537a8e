"""Sends one batch to an instance, as a POST in the batch wire format, and reads the answers."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from carpool import errors, wire
from carpool.caching import SmallCache
from carpool.errors import FunctionFault
from carpool.rate_limited_log import RateLimit
from sidecar.runtime.hop import answered

if TYPE_CHECKING:
    from collections.abc import Iterable

    from carpool.http.client import Response
    from sidecar.core.batch import Batch
    from sidecar.runtime.handler_liveness import ProbedInstance

__all__ = ["AnswerHead", "Answers", "BatchCall"]

log = logging.getLogger(__name__)

_REASON_CHARS = 500


@dataclass(slots=True, frozen=True)
class AnswerHead:
    """Content type and other headers of a response, ready to be sent.

    Attributes:
        length: content length for HEAD, if the body was not sent; as in `Exchange.reply`.
    """

    content_type: str
    headers: tuple[tuple[str, str], ...]
    length: int | None = None


class Answers(NamedTuple):
    """The responses to a batch, in the order of its requests, and its padded and useful elements.

    Attributes:
        offends: whether the batch is a single request whose response makes a batch with it fail.
    """

    statuses: tuple[int, ...]
    heads: list[AnswerHead]
    bodies: list[memoryview]
    padding: tuple[int, int]
    offends: bool = False


class BatchCall:
    """One batch that is being sent: at once, if a connection is idle.

    Args:
        batch: as the batcher closed it.
        instance: the instance that takes it.
        context: headers for tracing.

    Attributes:
        pending: the request, whose response is pending.
    """

    repeatable = True  # even if the connection breaks after it was sent

    def __init__(
        self, batch: Batch, instance: ProbedInstance, context: Iterable[tuple[str, str]] = ()
    ) -> None:
        requests = batch.requests
        payloads = [request.payload for request in requests]
        self._ids = [request.id for request in requests]
        message = wire.encode_request(
            self._ids,
            [request.deadline - batch.sent for request in requests],
            [payload.head for payload in payloads],
            [payload.exchange.body for payload in payloads],
        )
        lines = [f"{name}: {value}\r\n".encode("latin-1", "replace") for name, value in context]
        headers = b"".join((instance.headers, *lines))
        self.pending = instance.pool.begin("POST", "/", headers, message)

    def answers(self, outcome: Response | Exception, timeout_s: float) -> Answers:
        """Read the responses.

        Args:
            outcome: of ``pending``.
            timeout_s: time limit of the function.

        Raises:
            FunctionFault: no response, or not one for each member.
            DeadlineMissed: no response within ``timeout_s``.
        """
        return _answers(answered(outcome, timeout_s, "the function"), self._ids)


@SmallCache
def _answer_head(head: bytes) -> AnswerHead:
    """Parse the content type and other headers of a response; cached, as they repeat.

    Raises:
        WireError: ill-formed, or too large for the servers on the way to the caller.
    """
    if len(head) > _HEAD_BYTES:
        msg = f"the head of an answer has {len(head)} bytes, expected at most {_HEAD_BYTES}"
        raise wire.WireError(msg)
    headers = [(name.lower(), value) for name, value in wire.parse_head(head).headers]
    content_type = next((value for name, value in headers if name == "content-type"), "")
    rest = tuple((name, value) for name, value in headers if name not in _OURS)
    return AnswerHead(content_type or "application/octet-stream", rest)


_OURS = wire.FRAMING | {"content-type"}
_HEAD_BYTES = 48 * 1024
_log_limit = RateLimit()
_FAILED = AnswerHead("application/json", ())
_LOWEST_STATUS, _HIGHEST_STATUS = 200, 599


def _answers(response: Response, ids: list[int]) -> Answers:
    if response.status != 200:  # noqa: PLR2004 - the one status of an answered batch
        reason = errors.body_text(response.body, _REASON_CHARS)
        msg = f"the function failed the batch with status {response.status}: {reason or 'no text'}"
        raise FunctionFault(msg)
    columns = wire.decode_answer(response.body)
    if list(columns.ids) != ids:
        msg = f"the function answered {len(columns.ids)} items, expected {len(ids)}"
        raise FunctionFault(msg)
    padding = _padding(response.header(b"x-carpool-padding"))
    statuses, bodies = columns.statuses, columns.bodies
    try:
        parsed = {head: _answer_head(head) for head in set(columns.heads)}
        heads = [parsed[head] for head in columns.heads]
        if min(statuses) < _LOWEST_STATUS or max(statuses) > _HIGHEST_STATUS:
            statuses, heads, bodies = _checked_one_by_one(columns)
    except wire.WireError:
        statuses, heads, bodies = _checked_one_by_one(columns)
    return Answers(statuses, heads, bodies, padding)


def _checked_one_by_one(
    columns: wire.AnswerColumns,
) -> tuple[tuple[int, ...], list[AnswerHead], list[memoryview]]:
    """Return the columns, with a failure in place of each response that cannot be passed on."""
    checked = [
        _checked(status, head, body)
        for status, head, body in zip(columns.statuses, columns.heads, columns.bodies, strict=True)
    ]
    statuses, heads, bodies = zip(*checked, strict=True)
    return statuses, list(heads), list(bodies)


def _checked(status: int, head: bytes, body: memoryview) -> tuple[int, AnswerHead, memoryview]:
    try:
        return _status(status), _answer_head(head), body
    except wire.WireError as error:
        if times := _log_limit.due(time.monotonic()):  # a function tends to repeat its errors
            msg = "invalid answers of the function became 502 (%d since the last such line): %s"
            log.error(msg, times, error)  # noqa: TRY400 - the function's fault, not ours
        reason = errors.body(f"the function's answer cannot be passed on: {error}")
        return error.status, _FAILED, memoryview(reason)


def _status(status: int) -> int:
    if not _LOWEST_STATUS <= status <= _HIGHEST_STATUS:
        msg = f"its status is {status}, expected 200 to 599"
        raise wire.WireError(msg)
    return status


def _padding(header: bytes | None) -> tuple[int, int]:
    """Parse ``PADDED/USEFUL``, as reported by a handler with ragged inputs; zeros if absent."""
    padded, _, useful = (header or b"").partition(b"/")
    return (int(padded), int(useful)) if padded.isdigit() and useful.isdigit() else (0, 0)
