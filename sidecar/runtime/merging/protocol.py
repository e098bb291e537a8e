"""The interface of a protocol whose requests can be merged."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from carpool.wire import Buffer

__all__ = ["ENTRIES_MAX", "MergeProtocol", "Mergeable", "Message", "Probe"]

ENTRIES_MAX = 4095  # in a merged request, whatever the largest batch


class Message(NamedTuple):
    """A request to a server, or its response.

    Attributes:
        body: as it is sent.
        json_length: number of bytes of JSON in it, in digits, as in the header
            ``Inference-Header-Content-Length``; empty without that header.
    """

    body: Buffer
    json_length: bytes = b""


class Probe(NamedTuple):
    """Probe of a server, which is up if ``path`` returns a status less than ``below``."""

    path: str
    below: int


class Mergeable(Protocol):
    """A request that can be merged."""

    @property
    def item_count(self) -> int:
        """Number of items; with more than the largest batch a request must be sent alone."""

    @property
    def agreement(self) -> Hashable:
        """Value that must be equal for requests to be merged."""


T = TypeVar("T", bound=Mergeable)


class MergeProtocol(Protocol[T]):
    """Merges requests of one protocol, and divides their responses."""

    @property
    def PROBE(self) -> Probe:  # noqa: N802 - a module's constant
        """Probe of servers of this protocol."""

    def read(self, target: str, request: Message, most: int) -> T | None:
        """Return the mergeable content of a request; None if it must be sent as it is.

        Args:
            target: path and query.
            request: as it was sent, without content coding.
            most: with more items than this it is not merged; at most ``ENTRIES_MAX``.
        """

    def merged(self, requests: Sequence[T]) -> Message:
        """Return one request with all items, in order."""

    def divided(self, answer: Message, requests: Sequence[T]) -> list[Message]:
        """Return the responses to requests that were merged.

        Raises:
            FunctionFault: the response cannot be divided between the requests.
        """
