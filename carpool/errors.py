"""The error tree every part raises, with the HTTP status and exit code each error means.

The edge that answers a client maps an error by reading its class attributes; nothing else in the
project chooses a status. Errors say what was wrong, what was expected and how to fix it; they
never carry payloads.
"""

from __future__ import annotations

import json
import math
import reprlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
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
    "shown",
]


@dataclass(frozen=True, slots=True)
class Problem:
    """One ill-formed value: which, what was given, what was expected, and a fix if one is known."""

    name: str
    value: str
    expected: str
    hint: str = ""

    def __str__(self) -> str:
        text = f"{self.name} = {self.value!r}: expected {self.expected}"
        return f"{text}; {self.hint}" if self.hint else text


class CarpoolError(Exception):
    """Base of every error Carpool raises on purpose."""

    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1


class ConfigError(CarpoolError):
    """Settings, plans or files that cannot be used; carries every problem found, not the first."""

    status: ClassVar[int] = 400
    exit_code: ClassVar[int] = 2

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class ClientFault(CarpoolError):
    """The caller sent something that cannot be served as it is."""

    status: ClassVar[int] = 400


class BadRequest(ClientFault):
    """Malformed request: not what the function or the protocol expects."""


class NotFound(ClientFault):
    """The named function, model or route does not exist."""

    status: ClassVar[int] = 404


class Conflict(ClientFault):
    """The named thing exists already, or is in a state that forbids the change."""

    status: ClassVar[int] = 409


class BodyTooLarge(ClientFault):
    """The request is larger than the configured limit."""

    status: ClassVar[int] = 413


class Unfit(ClientFault):
    """What the caller needs, nothing here can give; the message says what comes closest."""

    status: ClassVar[int] = 422


class Overloaded(CarpoolError):
    """No room now; the caller may try again, after ``retry_after_s`` where that is known."""

    status: ClassVar[int] = 503
    retryable: ClassVar[bool] = True

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class QueueFull(Overloaded):
    """The function's queue holds as many requests as it may."""

    status: ClassVar[int] = 429


class DeadlineMissed(CarpoolError):
    """The request's deadline passed before it could be answered."""

    status: ClassVar[int] = 504
    retryable: ClassVar[bool] = True


class FunctionFault(CarpoolError):
    """The function crashed, cannot be reached, or answered something that is not an answer."""

    status: ClassVar[int] = 502


class Answer(NamedTuple):
    """What a client is told of an error."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...]


def answer(error: CarpoolError) -> Answer:
    """Status, body and headers that report ``error``: what it is, and when to try again."""
    headers: tuple[tuple[str, str], ...] = ()
    if isinstance(error, Overloaded) and error.retry_after_s is not None:
        headers = (("retry-after", str(max(1, math.ceil(error.retry_after_s)))),)
    return Answer(error.status, body(error), headers)


def body(error: BaseException | str) -> bytes:
    """The JSON body that reports ``error``, in the form of the Open Inference Protocol v2."""
    return json.dumps({"error": str(error)}, ensure_ascii=False).encode("utf-8", "replace")


def shown(value: object, limit: int = 80) -> str:
    """A value from outside, as a message may quote it: one bounded line, whatever it is.

    Nothing is looked at further than that, however long it is and however deeply it is nested.
    """
    short = reprlib.Repr()
    short.maxstring = short.maxlong = short.maxother = limit
    short.maxlevel = 4
    text = short.repr(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
