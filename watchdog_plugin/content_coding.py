"""Decodes request bodies that have a ``Content-Encoding``, gzip or deflate, up to a size limit."""

from __future__ import annotations

import zlib

from carpool.errors import CarpoolError

__all__ = ["LARGEST_BYTES", "DecodedBytes", "NotDecodedError", "TooMuchTogetherError", "decoded"]

LARGEST_BYTES = 64 * 1024 * 1024
_TOO_LARGE = 413
_GZIP, _ZLIB = 31, 15  # as zlib numbers the containers
_WINDOWS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": _ZLIB}


class NotDecodedError(Exception):
    """Raised when a body cannot be decoded; ``status`` is that of the response."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class TooMuchTogetherError(CarpoolError):
    """Raised when the decoded bodies of a batch are too large together, though maybe not alone."""

    status = 413


class DecodedBytes:
    """Limits the total size of the decoded bodies of one POST."""

    def __init__(self, limit: int = LARGEST_BYTES) -> None:
        self._limit = self._left = limit

    def decoded(self, body: memoryview, coding: str) -> memoryview:
        """Return a decoded body, as `decoded` does.

        Raises:
            NotDecodedError: The body cannot be decoded, or is too large by itself.
            TooMuchTogetherError: The body is too large together with those decoded before.
        """
        try:
            plain = decoded(body, coding, self._left)
        except NotDecodedError as error:
            if error.status == _TOO_LARGE and self._left < self._limit:
                msg = (
                    f"the bodies of a batch have more than {self._limit} bytes when they are "
                    "decoded; handler_body_max_mib raises the limit"
                )
                raise TooMuchTogetherError(msg) from error
            raise
        if plain is not body:
            self._left -= len(plain)
        return plain


def decoded(body: memoryview, coding: str, limit: int = LARGEST_BYTES) -> memoryview:
    """Return the decoded body.

    Raises:
        NotDecodedError: With status 415 if the coding is unknown, 400 if the bytes are not valid in
            it, 413 if the decoded body exceeds ``limit`` bytes.
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
        msg = (
            f"the body is larger than {limit} bytes when it is decoded; "
            "handler_body_max_mib raises the limit"
        )
        raise NotDecodedError(msg, _TOO_LARGE)
    if not engine.eof or engine.unused_data:  # parts back to back would take a copy each
        what = "more than one" if engine.eof else "only the beginning of a"
        msg = f"the body has {what} {coding} stream: expected exactly one complete stream"
        raise NotDecodedError(msg, 400)
    return memoryview(plain)
