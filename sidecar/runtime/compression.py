"""Compresses responses for callers that accept it, on other threads if that takes long.

Only responses of the handler are compressed: errors are short. Content that is already compressed,
such as images, is passed on unchanged.
"""

from __future__ import annotations

import asyncio
import zlib
from functools import partial
from typing import TYPE_CHECKING, Self

from carpool.http.exchange import UNKNOWN_LENGTH

if TYPE_CHECKING:
    from carpool.http.server import Exchange

    Headers = tuple[tuple[str, str], ...]

__all__ = ["Compression", "accepted", "compress"]

_WINDOW_BITS = {"gzip": 31, "deflate": 15}  # zlib selects the container by these
_LEVEL = 1  # a third of the time of the usual level, for a tenth more bytes
_AT_ONCE_BYTES = 8 * 1024  # compressing this much takes as long as using a thread
_COMPRESSED = ("image/", "audio/", "video/", "application/zip", "application/gzip")
_VARY = ("vary", "accept-encoding")
_UNDER_WAY_BYTES = 64 * 1024 * 1024  # further responses are not compressed
_AS_THEY_ARE = frozenset(("content-encoding", "content-range"))


def accepted(value: bytes | None) -> str:
    """Return the coding for a caller that sent this ``Accept-Encoding``. Empty if none."""
    weights = dict(_weight(part) for part in (value or b"").decode("latin-1").lower().split(","))
    anything = weights.get("*", 0.0)
    for coding in _WINDOW_BITS:
        if weights.get(coding, anything) > 0:
            return coding
    return ""


def compress(body: bytes | memoryview, coding: str) -> bytes:
    """Return ``body`` compressed with ``coding``."""
    made = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW_BITS[coding])
    return made.compress(body) + made.flush()


class Compression:
    """Replies to exchanges whose responses may be compressed.

    Args:
        from_bytes: smallest size that is compressed.
    """

    def __init__(self, from_bytes: int) -> None:
        self._from_bytes = from_bytes
        self._under_way_bytes = 0

    @classmethod
    def of(cls, from_bytes: int) -> Self | None:
        """Return a compression of responses from this size on; None if ``from_bytes`` is 0."""
        return cls(from_bytes) if from_bytes else None

    def replies(
        self,
        exchange: Exchange,
        status: int,
        body: memoryview,
        content_type: str,
        headers: Headers,
        length: int | None = None,
    ) -> bool:
        """Reply now or soon if the response may be compressed; return whether it may.

        HEAD gets the same headers as GET, except for the length of a body that is not compressed
        for it; ``length`` is as in `Exchange.reply`.
        """
        head = exchange.method == "HEAD"
        size = len(body) if length is None else length
        if size < self._from_bytes:
            return False
        if content_type.startswith(_COMPRESSED) or not _AS_THEY_ARE.isdisjoint(dict(headers)):
            return False
        coding = accepted(exchange.header(b"accept-encoding"))
        plain = partial(exchange.reply, status, body, content_type, (*headers, _VARY))
        coded = (*map(_weak, headers), ("content-encoding", coding), _VARY)
        if not coding:
            plain(length=length)
        elif head:
            exchange.reply(status, b"", content_type, coded, length=UNKNOWN_LENGTH)
        elif len(body) <= _AT_ONCE_BYTES:
            exchange.reply(status, compress(body, coding), content_type, coded)
        elif self._under_way_bytes + len(body) > _UNDER_WAY_BYTES:
            plain()
        else:
            exchange.on_gone = None  # the request is over, and counted
            self._under_way_bytes += len(body)
            loop = asyncio.get_running_loop()
            made = loop.run_in_executor(None, compress, body, coding)

            def ended(future: asyncio.Future[bytes]) -> None:
                self._under_way_bytes -= len(body)
                if future.cancelled() or future.exception():
                    plain()
                else:
                    exchange.reply(status, future.result(), content_type, coded)

            made.add_done_callback(ended)
        return True


def _weak(header: tuple[str, str]) -> tuple[str, str]:
    """Return a header of a response that gets compressed: a strong ``ETag`` becomes weak."""
    name, value = header
    return (name, f"W/{value}") if name == "etag" and value.startswith('"') else header


def _weight(part: str) -> tuple[str, float]:
    """Return a coding and its weight; 0 if the weight cannot be read."""
    coding, _, weight = part.strip().partition(";")
    text = weight.strip().removeprefix("q=")
    try:
        return coding.strip(), float(text) if text else 1.0
    except ValueError:
        return coding.strip(), 0.0
