"""Turns an author's result into the bytes of a response: status, head and body.

Knows the kinds of results and the content type each implies, but not where they come from.
"""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, NamedTuple

from carpool import errors, wire
from watchdog_plugin import json_codec
from watchdog_plugin.item import ItemError, Reply

if TYPE_CHECKING:
    from carpool.wire import Buffer

__all__ = [
    "JSON",
    "LARGEST_BYTES",
    "Answer",
    "failure",
    "from_result",
    "json_answer",
    "reply_head",
    "too_large",
    "within",
]

JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"
_BYTES = "application/octet-stream"
LARGEST_BYTES = 64 * 1024 * 1024  # by default
_LOWEST_STATUS, _HIGHEST_STATUS = 200, 599


class Answer(NamedTuple):
    """The response to one item, in the form that is sent."""

    status: int
    head: bytes
    body: Buffer


@functools.lru_cache(maxsize=64)
def _head(content_type: str) -> bytes:
    return wire.build_head("", [("content-type", content_type)])


_RAW_HEAD = _head(_BYTES)
_JSON_HEAD = _head(JSON)


def failure(status: int, error: BaseException | str) -> Answer:
    """Return a response that reports ``error``."""
    return Answer(status, _head(JSON), errors.body(error))


def json_answer(value: object) -> Answer:
    """Return a successful response with ``value`` as its JSON body."""
    return Answer(200, _JSON_HEAD, json_codec.dumps(value))


def within(limit: int, answer: Answer, status: int) -> Answer:
    """Return ``answer``, or a failure with ``status`` if its body is larger than ``limit``."""
    size = len(answer.body)
    return answer if size <= limit else failure(status, too_large(size, limit))


def too_large(size: int, limit: int, what: str = "the answer has") -> str:
    """Return the error message for a response that exceeds the size limit."""
    return (
        f"{what} {size} bytes, expected at most {limit}: ask for fewer rows or outputs; "
        "handler_answer_max_mib raises the limit"
    )


def from_result(result: object) -> Answer:
    """Return the response for a result; an invalid result becomes a 500 for this item only."""
    result_type = type(result)  # the two types that most functions give, a batch of them at a time
    if result_type is bytes:
        return Answer(200, _RAW_HEAD, result)  # type: ignore[arg-type]
    try:
        if result_type is dict:
            return Answer(200, _JSON_HEAD, json_codec.dumps(result))
        if isinstance(result, ItemError):
            return failure(result.status, result)
        if isinstance(result, Reply):
            return _from_reply(result)
        body, content_type = _body(result)
        return Answer(200, _head(content_type), body)
    except Exception as error:  # noqa: BLE001  an author's own types raise what they like
        expected = "bytes, str, a JSON value, Reply or ItemError"
        return failure(500, f"the function's result is not an answer: {error}; expected {expected}")


def _body(value: object) -> tuple[Buffer, str]:
    if isinstance(value, bytes):
        return value, _BYTES
    if isinstance(value, str):
        return value.encode(), _TEXT
    if isinstance(value, bytearray | memoryview):
        return bytes(value), _BYTES
    return json_codec.dumps(value), JSON


def reply_head(reply: Reply) -> tuple[int, list[tuple[str, str]]]:
    """Return the status and headers of a `Reply`, except for its content type.

    Raises:
        ValueError: The status or a header cannot be sent.
    """
    status = operator.index(reply.status)
    if not _LOWEST_STATUS <= status <= _HIGHEST_STATUS:
        msg = f"Reply status = {status}: expected 200 to 599"
        raise ValueError(msg)
    taken = wire.FRAMING.intersection(name.lower() for name in reply.headers)
    if taken:
        msg = f"Reply header {min(taken)!r} is set by the server: leave it out"
        raise ValueError(msg)
    return status, [(k, v) for k, v in reply.headers.items() if k.lower() != "content-type"]


def _from_reply(reply: Reply) -> Answer:
    status, others = reply_head(reply)
    body, implied = _body(reply.body)
    content_type = reply.content_type or implied
    if not reply.headers:
        return Answer(status, _head(content_type), body)
    return Answer(status, wire.build_head("", [("content-type", content_type), *others]), body)
