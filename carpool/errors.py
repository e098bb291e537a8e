"""The hierarchy of errors that all parts raise, each with its HTTP status and exit code.

The edge that responds to a client reads them from the error's class attributes; nothing else in the
project chooses a status. Errors say what was wrong, what was expected and how to fix it; they
never carry payloads.
"""

from __future__ import annotations

import json
import math
import reprlib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "MISSING",
    "Answer",
    "BadRequest",
    "BodyTooLarge",
    "CarpoolError",
    "ClientFault",
    "ConfigError",
    "Conflict",
    "DeadlineMissed",
    "FunctionFault",
    "NotFound",
    "Overloaded",
    "Problem",
    "QueueFull",
    "Unfit",
    "answer",
    "body",
    "body_text",
    "shown",
]

MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Problem:
    """One invalid value: its name, what was given, what was expected, and a fix if one is known.

    The hint `MISSING` means that no value was given.
    """

    name: str
    value: str
    expected: str
    hint: str = ""

    def __str__(self) -> str:
        if self.hint == MISSING:
            return f"{self.name} is missing: expected {self.expected}"
        text = f"{self.name} = {self.value!r}: expected {self.expected}"
        return f"{text}; {self.hint}" if self.hint else text


class CarpoolError(Exception):
    """Base class of all errors that Carpool raises on purpose."""

    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1


class ConfigError(CarpoolError):
    """Unusable settings, plans or files; carries all problems found, not only the first."""

    status: ClassVar[int] = 400
    exit_code: ClassVar[int] = 2

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class ClientFault(CarpoolError):
    """The caller sent something that cannot be served as is."""

    status: ClassVar[int] = 400


class BadRequest(ClientFault):
    """Malformed request: not what the function or the protocol expects."""


class NotFound(ClientFault):
    """The named function, model or route does not exist."""

    status: ClassVar[int] = 404


class Conflict(ClientFault):
    """The named object already exists, or is in a state that does not allow the change."""

    status: ClassVar[int] = 409


class BodyTooLarge(ClientFault):
    """The request is larger than the configured limit."""

    status: ClassVar[int] = 413


class Unfit(ClientFault):
    """Nothing available meets the caller's needs; the message names the closest option."""

    status: ClassVar[int] = 422


class Overloaded(CarpoolError):
    """No capacity at present; the caller may retry, after ``retry_after_s`` if that is known."""

    status: ClassVar[int] = 503

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class QueueFull(Overloaded):
    """The function's queue holds the maximum number of requests."""

    status: ClassVar[int] = 429


class DeadlineMissed(CarpoolError):
    """The request's deadline passed before a response was ready."""

    status: ClassVar[int] = 504


class FunctionFault(CarpoolError):
    """The function crashed, cannot be reached, or sent an invalid response."""

    status: ClassVar[int] = 502


class Answer(NamedTuple):
    """Response that reports an error to a client."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...]


def answer(error: CarpoolError) -> Answer:
    """Return the status, body and headers that report ``error``, including when to retry."""
    headers: tuple[tuple[str, str], ...] = ()
    if isinstance(error, Overloaded) and error.retry_after_s is not None:
        headers = (("retry-after", str(max(1, math.ceil(error.retry_after_s)))),)
    return Answer(error.status, body(error), headers)


def body(error: BaseException | str) -> bytes:
    """Return the JSON body that reports ``error``, in Open Inference Protocol v2 form."""
    return json.dumps({"error": str(error)}, ensure_ascii=False).encode("utf-8", "replace")


def body_text(body: bytes | memoryview, limit: int) -> str:
    """Return the text of a response that reports an error: its ``error`` if it is such JSON.

    Args:
        body: Body of the response.
        limit: Maximum number of characters.
    """
    text = bytes(body[: 4 * limit]).decode("utf-8", "replace")
    if text.lstrip().startswith("{"):
        with suppress(ValueError, RecursionError, LookupError, TypeError):
            text = str(json.loads(bytes(body))["error"])
    return text[:limit].strip()


def shown(value: object, limit: int = 80) -> str:
    """Return an external value as a message may quote it: one line of limited length.

    The value is not read any further than that, however long or deeply nested it is.
    """
    short = reprlib.Repr()
    short.maxstring = short.maxlong = short.maxother = limit
    short.maxlevel = 4
    text = short.repr(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
