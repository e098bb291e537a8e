"""Reads the parameters of an Open Inference Protocol body; the tensors are skipped.

A compressed body is decoded for this, but at most four mebibytes of it, as all other requests wait
meanwhile. In a larger body no parameters are found, unless its size is due to binary tensors.
"""

from __future__ import annotations

import math
import zlib
from functools import cache
from typing import TYPE_CHECKING, Any

from carpool.errors import BadRequest, shown

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PLAIN_MAX", "plain", "read", "timeout_s"]

PLAIN_MAX = 4 * 1024 * 1024  # bytes of JSON that were compressed
_WINDOWS = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}  # zlib selects the container by these

_TIMEOUT = b'"timeout"'
_US_PER_S = 1e6
_TIMEOUT_MAX_US = 2**63 - 1
_DIGITS_MAX = 19  # of a length; no body has a longer one


def plain(body: bytes, coding: bytes, json_length: bytes) -> bytes:
    """Return a body without its content coding, up to the part that may have the parameters.

    Args:
        body: As it was sent; returned unchanged if its coding is unknown.
        coding: Its ``Content-Encoding``; empty if none.
        json_length: Number of bytes of JSON in the decoded body, in digits; empty if all.
    """
    window = _WINDOWS.get(coding.strip().lower())
    if window is None:
        return body
    wanted = _length(json_length)
    most = PLAIN_MAX if wanted is None else max(1, min(wanted, PLAIN_MAX))
    try:
        return zlib.decompressobj(window).decompress(body, most)
    except zlib.error:
        return body  # the handler reports the error


def read(body: bytes, json_length: bytes, mark: bytes) -> dict[str, Any]:
    """Return the parameters of a request. Empty if it has none, or ``mark`` is not in the body.

    Args:
        body: Without content coding.
        json_length: Number of bytes of JSON in it, in digits; empty if all.
        mark: Text to search first, as decoding costs more.
    """
    text = body[: _length(json_length)]
    if mark not in text:
        return {}
    return _decoder()(text)


def timeout_s(body: bytes, json_length: bytes) -> float:
    """Return Triton's parameter ``timeout``, given in microseconds, in seconds; ``inf`` if none.

    Raises:
        BadRequest: not a number of microseconds.
    """
    timeout_us = read(body, json_length, _TIMEOUT).get("timeout", 0)
    if type(timeout_us) is not int or not 0 <= timeout_us <= _TIMEOUT_MAX_US:
        msg = f"the parameter timeout is {shown(timeout_us)}, expected a number of microseconds"
        raise BadRequest(msg)
    return timeout_us / _US_PER_S or math.inf


def _length(digits: bytes) -> int | None:
    """Return the number of bytes of JSON; None if all are, or the length is not valid."""
    return int(digits) if digits.isdigit() and len(digits) <= _DIGITS_MAX else None


@cache
def _decoder() -> Callable[[bytes], dict[str, Any]]:
    """Return a function that decodes the parameters of a request, and nothing else.

    The first body with parameters makes it: few sidecars get one, and all would load its package.
    """
    import msgspec  # noqa: PLC0415

    class Body(msgspec.Struct):
        parameters: dict[str, Any] = {}

    decoder = msgspec.json.Decoder(Body)

    def decoded(text: bytes) -> dict[str, Any]:
        try:
            return decoder.decode(text).parameters
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return {}  # the handler reports the error

    return decoded
