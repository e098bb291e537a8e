"""What a form of requests has to say, so that they can be merged."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from carpool.wire import Buffer

__all__ = ["ENTRIES_MAX", "MergeForm", "Mergeable", "Message", "Probe"]

ENTRIES_MAX = 4095  # of a request that is merged, whatever the largest batch


class Message(NamedTuple):
    """What is sent to a server, or what it answers.

    Attributes:
        body: as it is sent.
        json_length: how many bytes of it are JSON, in digits, as the header
            ``Inference-Header-Content-Length`` has it; empty: there is none.
    """

    body: Buffer
    json_length: bytes = b""


class Probe(NamedTuple):
    """How a server says that it is up: it answers ``path`` with a status less than ``below``."""

    path: str
    below: int


class Mergeable(Protocol):
    """A request that can be merged."""

    @property
    def item_count(self) -> int:
        """How many items it has; with more than the largest batch it must travel alone."""

    @property
    def agreement(self) -> Hashable:
        """Requests are merged only if they agree in it."""


T = TypeVar("T", bound=Mergeable)


class MergeForm(Protocol[T]):
    """One form of requests, and of their answers."""

    @property
    def PROBE(self) -> Probe:  # noqa: N802 - a module's constant
        """How a server of this form says that it is up."""

    def read(self, target: str, request: Message, most: int) -> T | None:
        """What can be merged of a request; None: it must travel as it is.

        Args:
            target: path and query.
            request: as it was sent, with no content coding.
            most: with more items than these it will not be merged; at most ``ENTRIES_MAX``.
        """

    def merged(self, requests: Sequence[T]) -> Message:
        """One request with all items, in order."""

    def divided(self, answer: Message, requests: Sequence[T]) -> list[Message]:
        """The answers to requests that were merged.

        Raises:
            FunctionFault: nobody can tell which part of the answer is whose.
        """
