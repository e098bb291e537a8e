"""Undoes the ``Content-Encoding`` of a request's body: gzip and deflate, within a limit."""

from __future__ import annotations

import zlib

__all__ = ["LARGEST_BYTES", "NotDecodedError", "decoded"]

LARGEST_BYTES = 64 * 1024 * 1024
_GZIP, _ZLIB = 31, 15  # as zlib numbers the containers
_WINDOWS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": _ZLIB}


class NotDecodedError(Exception):
    """The body cannot be decoded; ``status`` is what its caller is answered."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def decoded(body: memoryview, coding: str, limit: int = LARGEST_BYTES) -> memoryview:
    """The body before it was encoded.

    Raises:
        NotDecodedError: 415, the coding is not known; 400, the bytes are not in it; 413, more than
            ``limit`` bytes come out.
    """
    coding = coding.strip().lower()
    if coding == "identity":
        return body
    window = _WINDOWS.get(coding)
    if window is None:
        msg = f"Content-Encoding = {coding[:80]!r}: expected gzip, deflate or identity"
        raise NotDecodedError(msg, 415)
    engine = zlib.decompressobj(window)
    try:
        plain = engine.decompress(body, limit + 1)
    except zlib.error as error:
        msg = f"the body is not {coding}, as Content-Encoding says: {error}"
        raise NotDecodedError(msg, 400) from error
    if len(plain) > limit:
        msg = f"the body is larger than {limit} bytes when it is decoded"
        raise NotDecodedError(msg, 413)
    if not engine.eof or engine.unused_data:  # parts back to back would take a copy each
        what = "more than one part of" if engine.eof else "only the beginning of"
        msg = f"the body has {what} what Content-Encoding says, {coding}: expected one whole part"
        raise NotDecodedError(msg, 400)
    return memoryview(plain)
