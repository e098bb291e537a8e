"""The types an author works with: `Item` for input; results, `Reply` and `ItemError` for output.

Knows neither models, batches nor sockets. Items are lazy: a head is parsed when the first header is
read, and only once for all items that share it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from carpool.caching import SmallCache
from carpool.wire import parse_head, shared_head
from watchdog_plugin import content_coding, json_codec
from watchdog_plugin.content_coding import DecodedBytes

__all__ = ["Event", "Headers", "Item", "ItemError", "Line", "Reply", "read_head"]

_FIRST_ERROR_STATUS = 400
_LAST_STATUS = 599
_CODED = b"\ncontent-encoding: "


class Headers(Mapping[str, str]):
    """Request headers with case-insensitive names; repeated headers are joined by ``, ``."""

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
    """The parsed request line and headers of a head."""

    method: str
    path: str
    query: str
    headers: Headers


@SmallCache
def read_head(head: bytes) -> Line:
    """Return the request line and the headers of all items that share ``head``."""
    first_line, pairs = parse_head(head)
    method, _, target = first_line.partition(" ")
    path, _, query = target.partition("?")
    return Line(method, path, query, Headers(pairs))


class Item:
    """One request of a batch.

    Attributes:
        head: The request line and the headers as received; most items of a batch share one.
        remaining_s: Seconds left before the request's deadline when the batch was sent; ``inf`` if
            it has none.
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
        """The request's body, as a view into the batch; ``bytes()`` copies it.

        A body with a ``Content-Encoding`` is decoded when it is first read.

        Raises:
            ItemError: The body cannot be decoded. As with `json`, it need not be caught.
            TooMuchTogetherError: The decoded bodies of the batch are too large together; the batch
                is then divided.
        """
        if self._coded:
            coding = self._shared.headers["content-encoding"]
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
        return self._shared.method

    @property
    def path(self) -> str:
        """Path relative to the function's own, such as ``/``, without the query."""
        return self._shared.path

    @property
    def query(self) -> str:
        """Query string after the path's ``?``, as it was sent."""
        return self._shared.query

    @property
    def headers(self) -> Headers:
        """Headers forwarded by the sidecar."""
        return read_head(self.head).headers

    @property
    def content_type(self) -> str:
        """The ``Content-Type`` header, or an empty string."""
        return self._shared.headers.get("content-type", "")

    @property
    def _shared(self) -> Line:
        """The head without the headers of this request alone, parsed once for many items."""
        return read_head(shared_head(self.head))

    def bytes(self) -> bytes:
        """Return a copy of the body."""
        return bytes(self.body)

    def json(self) -> Any:  # noqa: ANN401  JSON is any of six types
        """Return the body parsed as JSON.

        Raises:
            ItemError: The body is not JSON. It need not be caught, not even in `handle_batch`: this
                item gets a 400, and the other items are not affected.
        """
        try:
            return json_codec.loads(self.body)
        except json_codec.NotJsonError as error:
            msg = f"the body is not JSON: {error}"
            raise ItemError(msg, item=self) from error

    def __repr__(self) -> str:
        return f"<Item {self.method} {self.path}, {len(self._body)} bytes>"


class ItemError(Exception):
    """Reports that one request cannot be answered, without failing the rest of its batch.

    Return it in the list of results, or raise it in `preprocess` or `postprocess`.

    Args:
        message: Error message for the caller.
        status: HTTP status of the response, 400 to 599.
        item: The item that it is about; only needed if it is raised inside `handle_batch`.
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
    """A response with a status, content type or headers of its own.

    Attributes:
        body: Bytes, text, or any JSON-serializable value; for a `stream`, an iterator of these.
        status: HTTP status, 200 to 599.
        content_type: Overrides the content type implied by the body's type.
        headers: Further response headers.
    """

    body: object = b""
    status: int = 200
    content_type: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


class Event(NamedTuple):
    """A piece of a stream with an event name or id.

    Attributes:
        data: Bytes, text, or any JSON-serializable value.
        name: Event name; if empty, ``message``, which is what callers listen to by default.
        id: Event id; empty if it has none.
    """

    data: object
    name: str = ""
    id: str = ""
