"""The types an author works with: `Item` comes in, a result, a `Reply` or an `ItemError` goes out.

Nothing here knows models, batches or sockets. An item costs nothing until it is asked: its head is
parsed when the first header is read, and once for all items that share it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from carpool.caching import SmallCache
from carpool.wire import parse_head
from watchdog_plugin import content_coding
from watchdog_plugin.content_coding import DecodedBytes
from watchdog_plugin.protocols import json_codec

__all__ = ["Event", "Headers", "Item", "ItemError", "Line", "Reply", "read_head"]

_FIRST_ERROR_STATUS = 400
_LAST_STATUS = 599
_CODED = b"\ncontent-encoding: "


class Headers(Mapping[str, str]):
    """Request headers; names are found in any case, a repeated header is joined by ``, ``."""

    __slots__ = ("_values",)

    def __init__(self, pairs: tuple[tuple[str, str], ...] = ()) -> None:
        self._values: dict[str, str] = {}
        for name, value in pairs:
            known = self._values.get(name)
            self._values[name] = value if known is None else f"{known}, {value}"

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __contains__(self, name: object) -> bool:  # inherited, it would raise and catch a KeyError
        return isinstance(name, str) and name.lower() in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Headers({', '.join(self._values)})"


class Line(NamedTuple):
    """What a head says."""

    method: str
    path: str
    query: str
    headers: Headers


@SmallCache
def read_head(head: bytes) -> Line:
    """The request line and the headers of all items that share ``head``."""
    first_line, pairs = parse_head(head)
    method, _, target = first_line.partition(" ")
    path, _, query = target.partition("?")
    return Line(method, path, query, Headers(pairs))


class Item:
    """One request of a batch.

    Attributes:
        head: the request line and the headers as they came; most items of a batch share one.
        remaining_s: seconds left before the request's deadline when the batch was sent, ``inf``
            where it has none.
    """

    __slots__ = ("_body", "_coded", "_decoded_bytes", "head", "remaining_s")

    def __init__(
        self,
        body: memoryview,
        head: bytes,
        remaining_s: float,
        decoded_bytes: DecodedBytes | None = None,
    ) -> None:
        self._decoded_bytes = decoded_bytes
        self._body = body
        self._coded = _CODED in head
        self.head = head
        self.remaining_s = remaining_s

    @property
    def body(self) -> memoryview:
        """The request's body, a view into the batch; ``bytes()`` copies it.

        A body with a ``Content-Encoding`` is decoded when it is first read.

        Raises:
            ItemError: it cannot be decoded. As for `json`, it may be left uncaught.
            TooMuchTogetherError: not with the others of its batch, which is then divided.
        """
        if self._coded:
            coding = self.headers["content-encoding"]
            try:
                limit = self._decoded_bytes or DecodedBytes()
                self._body = limit.decoded(self._body, coding)
            except content_coding.NotDecodedError as error:
                raise ItemError(str(error), error.status, item=self) from error
            self._coded = False
        return self._body

    @property
    def method(self) -> str:
        """HTTP method, such as ``POST``."""
        return read_head(self.head).method

    @property
    def path(self) -> str:
        """Path under the function's own, such as ``/``, without the query."""
        return read_head(self.head).path

    @property
    def query(self) -> str:
        """What follows the path's ``?``, as it was sent."""
        return read_head(self.head).query

    @property
    def headers(self) -> Headers:
        """Headers the sidecar passed on."""
        return read_head(self.head).headers

    @property
    def content_type(self) -> str:
        """The ``Content-Type`` header, or an empty string."""
        return read_head(self.head).headers.get("content-type", "")

    def bytes(self) -> bytes:
        """A copy of the body."""
        return bytes(self.body)

    def json(self) -> Any:  # noqa: ANN401  JSON is any of six types
        """The body as JSON.

        Raises:
            ItemError: it is not JSON. It may be left uncaught, in `handle_batch` too: this item
                is answered with 400, its neighbours are not disturbed.
        """
        try:
            return json_codec.loads(self.body)
        except json_codec.NotJsonError as error:
            msg = f"the body is not JSON: {error}"
            raise ItemError(msg, item=self) from error

    def __repr__(self) -> str:
        return f"<Item {self.method} {self.path}, {len(self._body)} bytes>"


class ItemError(Exception):
    """One request cannot be answered as asked; its neighbours can.

    Return it in the list of results, or raise it in `preprocess` or `postprocess`.

    Args:
        message: for the caller.
        status: HTTP status of the answer, 400 to 599.
        item: the item that it is about; only needed to raise it inside `handle_batch`.
    """

    def __init__(self, message: str, status: int = 400, *, item: Item | None = None) -> None:
        if not _FIRST_ERROR_STATUS <= status <= _LAST_STATUS:
            msg = f"ItemError status = {status}: expected 400 to 599; a Reply can say success"
            raise ValueError(msg)
        super().__init__(message)
        self.status = status
        self.item = item


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer with more to say than its body.

    Attributes:
        body: bytes, text, or anything with a JSON form; of a `stream`, an iterator of such pieces.
        status: HTTP status, 200 to 599.
        content_type: overrides what the body's type implies.
        headers: further response headers.
    """

    body: object = b""
    status: int = 200
    content_type: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


class Event(NamedTuple):
    """A piece of a stream with more to say than its data.

    Attributes:
        data: bytes, text, or anything with a JSON form.
        name: of the event; empty: ``message``, which is what callers listen to by default.
        id: of the event; empty: none.
    """

    data: object
    name: str = ""
    id: str = ""
