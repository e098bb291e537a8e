"""Runs an author's `stream` and sends its pieces to the caller as they are yielded.

A stream runs on the thread of its connection, in parallel with batches and other streams. Its first
piece is computed before anything is sent, so that an error before it gets its own status. If the
caller disconnects, the generator is closed at its next piece.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from carpool import errors, wire
from carpool.errors import Overloaded
from carpool.stream_rule import EVENT_STREAM, StreamRule
from watchdog_plugin import answers, json_codec, logs
from watchdog_plugin.item import Event, ItemError, Reply, read_head
from watchdog_plugin.reader import CutOffError
from watchdog_plugin.server import Response

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from watchdog_plugin.answers import Answer
    from watchdog_plugin.handler_contract import HandlerModule
    from watchdog_plugin.item import Item
    from watchdog_plugin.settings import HandlerSettings

__all__ = ["Streaming"]

_LINE_BREAK = re.compile(rb"\r\n|\r|\n")
_END = b"event: end\ndata:\n\n"
_DONE = b"data: [DONE]\n\n"  # how OpenAI's interface marks the end
_NEWS = (("cache-control", "no-cache"), ("x-accel-buffering", "no"))
_MARK = (wire.STREAM_HEADER, "true")
_AS_IT_IS = (str, bytes, bytearray, memoryview)


class Streaming:
    """Streams the output of an author's `stream`.

    Args:
        author: Definitions of the author, with `stream`.
        everything: Whether it handles every request, as the function has no other handler.
        at_once_max: Maximum number of concurrent streams.
        answer_max_bytes: Maximum size of a response that is not streamed.
    """

    def __init__(
        self,
        author: HandlerModule,
        *,
        everything: bool,
        at_once_max: int,
        answer_max_bytes: int = answers.LARGEST_BYTES,
    ) -> None:
        assert author.stream is not None  # noqa: S101  or there is nothing to stream
        self._stream: Callable[[Item], object] = author.stream
        self._answer_max_bytes = answer_max_bytes
        self._at_once_max = at_once_max
        self._places = threading.BoundedSemaphore(at_once_max)
        self.rule = StreamRule(everything, author.stream_paths)

    @classmethod
    def of(
        cls, author: HandlerModule, settings: HandlerSettings, *, everything: bool
    ) -> Self | None:
        """Return the streaming of a handler; None if it does not define `stream`."""
        if author.stream is None:
            return None
        return cls(
            author,
            everything=everything,
            at_once_max=settings.streams_max,
            answer_max_bytes=settings.answer_max_bytes,
        )

    def takes(self, item: Item) -> bool:
        """Return whether a request is streamed."""
        line = read_head(wire.shared_head(item.head))
        accept = line.headers.get("accept", "")
        return line.method != "HEAD" and self.rule.admits(line.path, accept)

    def sent_back(self) -> Answer:
        """Return the response to a batched item that has to be sent again by itself."""
        text = "this request is streamed: it cannot be answered within a batch"
        head = wire.build_head("", [("content-type", answers.JSON), _MARK])
        return answers.Answer(wire.STREAM_STATUS, head, errors.body(text))

    def answer(self, item: Item) -> Response:
        """Return the response to one request, with its first piece; never raises."""
        made = self._run(item)
        try:
            first: Answer | Response = next(made)
        except Overloaded as error:
            return _whole(answers.failure(error.status, error))
        except BaseException as error:  # noqa: BLE001  the author's, even a sys.exit()
            return _whole(_failure(error))
        if isinstance(first, Response):
            return first._replace(pieces=made)
        made.close()
        return _whole(first)

    def _run(self, item: Item) -> Generator[Any]:
        """Yield the complete response, or else one with the first piece and then the others."""
        with self._place():
            result = self._stream(item)
            reply = result if isinstance(result, Reply) else Reply(result)
            if not isinstance(reply.body, Iterator):
                answer = answers.from_result(result)
                yield answers.within(self._answer_max_bytes, answer, 500)
                return
            content_type = reply.content_type or EVENT_STREAM
            events = content_type.startswith(EVENT_STREAM)
            with _closing(reply.body) as pieces:
                made = _events(pieces) if events else _raw(pieces)
                status, own = answers.reply_head(reply)
                wire.build_head("", [("content-type", content_type), *own])  # or it cannot be sent
                headers = [*(_NEWS if events else ()), *own, _MARK]
                yield Response(status, next(made, b""), content_type, headers)
                yield from made

    @contextmanager
    def _place(self) -> Iterator[None]:
        """Occupy one of the places for concurrent streams; refuse the stream if all are taken.

        The number is limited, as an author's code may never return.
        """
        if not self._places.acquire(blocking=False):
            msg = f"{self._at_once_max} streams run already"
            raise Overloaded(msg, retry_after_s=1.0)
        try:
            yield
        finally:
            self._places.release()


@contextmanager
def _closing(pieces: Iterator[object]) -> Iterator[Iterator[object]]:
    """Close an author's generator, so that its ``finally`` runs, however its stream ends."""
    try:
        yield pieces
    finally:
        try:
            getattr(pieces, "close", lambda: None)()
        except Exception as error:  # noqa: BLE001  the author's
            logs.say_failure("closing a stream", error)


def _events(pieces: Iterator[object]) -> Iterator[bytes]:
    """Yield pieces as server-sent events; an error after the first one becomes the last event."""
    event = b""
    try:
        for piece in pieces:
            event = _event(piece)
            yield event
    except GeneratorExit:
        raise
    except BaseException as error:  # the author's, even a sys.exit()
        if not event:
            raise
        yield b"event: error\n" + _data(bytes(_failure(error).body))
    else:
        if event != _DONE:
            yield _END


def _raw(pieces: Iterator[object]) -> Iterator[bytes]:
    """Yield pieces unchanged, JSON one per line; a later error aborts the response."""
    data = None
    try:
        for piece in pieces:
            data = _bytes(piece)
            yield data if isinstance(piece, _AS_IT_IS) else data + b"\n"
    except GeneratorExit:
        raise
    except BaseException as error:
        if data is None:
            raise
        _failure(error)
        raise CutOffError from error


def _event(piece: object) -> bytes:
    data, name, identifier = piece if isinstance(piece, Event) else Event(piece)
    lines = b""
    for field, text in (("event", name), ("id", identifier)):
        if "\n" in text or "\r" in text:
            msg = f"Event {field} = {text!r}: expected one line"
            raise ValueError(msg)
        lines += f"{field}: {text}\n".encode() if text else b""
    return lines + _data(_bytes(data))


def _data(data: bytes) -> bytes:
    return b"".join([b"data: %b\n" % line for line in _LINE_BREAK.split(data)]) + b"\n"


def _bytes(piece: object) -> bytes:
    if isinstance(piece, str):
        return piece.encode()
    if isinstance(piece, bytes | bytearray | memoryview):
        return bytes(piece)
    return json_codec.dumps(piece)


def _failure(error: BaseException) -> Answer:
    """Return the response for an error of a stream; log it unless it is an `ItemError`."""
    if isinstance(error, ItemError):
        return answers.failure(error.status, error)
    logs.say_failure("stream", error)
    text = f"stream raised {logs.describe(error)}; the function's log says more"
    return answers.failure(500, text)


def _whole(answer: Answer) -> Response:
    pairs = dict(wire.parse_head(answer.head).headers)
    content_type = pairs.pop("content-type", "application/octet-stream")
    return Response(answer.status, answer.body, content_type, [*pairs.items(), _MARK])
