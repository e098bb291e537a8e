"""How a call fails: the gRPC status for a status of HTTP, with the same text.

504 and 408 are deadlines; 429 and 413 are limits that the caller has exceeded. 503 becomes
UNAVAILABLE, after which clients may retry. 502 becomes INTERNAL: the function failed on this
request, and would probably fail again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from grpc import StatusCode

from carpool import errors
from sidecar.runtime.oip_grpc.answers import HttpAnswer

if TYPE_CHECKING:
    from carpool.errors import CarpoolError

__all__ = ["Failed", "Failure", "passed_metadata"]

_CODES = {
    400: StatusCode.INVALID_ARGUMENT,
    401: StatusCode.UNAUTHENTICATED,
    403: StatusCode.PERMISSION_DENIED,
    404: StatusCode.NOT_FOUND,
    405: StatusCode.UNIMPLEMENTED,
    408: StatusCode.DEADLINE_EXCEEDED,
    409: StatusCode.ABORTED,
    412: StatusCode.FAILED_PRECONDITION,
    413: StatusCode.RESOURCE_EXHAUSTED,
    415: StatusCode.INVALID_ARGUMENT,
    422: StatusCode.INVALID_ARGUMENT,
    429: StatusCode.RESOURCE_EXHAUSTED,
    500: StatusCode.INTERNAL,
    501: StatusCode.UNIMPLEMENTED,
    502: StatusCode.INTERNAL,
    503: StatusCode.UNAVAILABLE,
    504: StatusCode.DEADLINE_EXCEEDED,
}
_FAULTS_OF_CALLERS = range(400, 500)
_FAILED = range(500, 600)
# Characters: clients take 8 KiB of metadata, in which each byte beyond ASCII takes three.
_TEXT_MAX = 1000
_METADATA_MAX = 32
_NAME = re.compile(r"x-[-_.0-9a-z]{1,100}").fullmatch
_VALUE = re.compile(r"[ -~]{0,400}").fullmatch


class Failure(NamedTuple):
    """How a call ends: the status, its text and the metadata behind it."""

    code: StatusCode
    text: str
    metadata: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, answer: HttpAnswer) -> Failure:
        """Return the failure that a response over HTTP reports."""
        return cls(_code(answer.status), _text(answer), passed_metadata(answer))

    @classmethod
    def of_error(cls, error: CarpoolError) -> Failure:
        """Return the failure that reports an error."""
        status, body, headers = errors.answer(error)
        return cls.of(HttpAnswer(status, body, headers))


class Failed(Exception):
    """Raised when a call ends without a message.

    Attributes:
        failure: How it ends.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


def passed_metadata(answer: HttpAnswer) -> tuple[tuple[str, str], ...]:
    """Return the headers that the caller gets as metadata: ``retry-after`` and ``x-...``."""
    metadata = [
        (name, value)
        for name, value in answer.headers
        if (name == "retry-after" or (_NAME(name) and not name.endswith("-bin"))) and _VALUE(value)
    ]
    return tuple(metadata[:_METADATA_MAX])


def _code(status: int) -> StatusCode:
    other = StatusCode.UNKNOWN
    if status in _FAULTS_OF_CALLERS:
        other = StatusCode.INVALID_ARGUMENT
    elif status in _FAILED:
        other = StatusCode.INTERNAL
    return _CODES.get(status, other)


def _text(answer: HttpAnswer) -> str:
    """Return the error of a response in the protocol's form, or else its text."""
    text = errors.body_text(answer.body, _TEXT_MAX)
    return text or f"the function answered with status {answer.status}"
