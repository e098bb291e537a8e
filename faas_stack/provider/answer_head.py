"""Selects the headers of a replica's response that are passed to the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from carpool import wire
from carpool.caching import SmallCache
from carpool.http import call_frames
from faas_stack.provider.call_template import HOP_BY_HOP, lines, named_by_connection

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from carpool.http.server import Exchange

__all__ = ["AnswerHead", "bundled_answer_head", "has_not_begun", "read_answer_head"]

_OURS = frozenset((b"content-length", b"content-type", b"date"))  # the edge writes these itself
_NOT_PASSED = _OURS | HOP_BY_HOP
_UNAVAILABLE = 503
_NOT_BEGUN = wire.NOT_BEGUN_HEADER.encode()


class AnswerHead(NamedTuple):
    """The head of a response.

    Attributes:
        content_type: Empty if it has none.
        lines: The other headers as they are sent to the caller.
        not_begun: Whether it says that the call was not started, if it is a refusal.
    """

    content_type: str
    lines: bytes
    not_begun: bool

    def type_for(self, exchange: Exchange) -> str:
        """Return the response's content type, otherwise the request's, otherwise plain text."""
        if self.content_type:
            return self.content_type
        return (exchange.header(b"content-type") or b"text/plain").decode("latin-1")


def read_answer_head(headers: Sequence[tuple[bytes, bytes]]) -> AnswerHead:
    """Return the head to pass on from these headers."""
    types = [value for name, value in headers if name == b"content-type"]
    return AnswerHead(
        types[0].decode("latin-1") if types else "",
        lines(_passed(headers)),
        any(name == _NOT_BEGUN for name, _ in headers),
    )


@SmallCache
def bundled_answer_head(head: bytes) -> AnswerHead:
    """Return the head of a response in a bundle; cached, as such heads repeat.

    Raises:
        WireError: If it is malformed.
    """
    return read_answer_head(call_frames.answer_lines(head))


def has_not_begun(status: int, head: AnswerHead) -> bool:
    """Return whether a replica has refused a call before starting it."""
    return status == _UNAVAILABLE and head.not_begun


def _passed(headers: Sequence[tuple[bytes, bytes]]) -> Iterable[tuple[bytes, bytes]]:
    dropped = _NOT_PASSED | named_by_connection(headers)
    return (
        pair for pair in headers if pair[0] not in dropped and not pair[0].startswith(b"proxy-")
    )
