"""Reads HTTP/1.1 requests from a blocking stream: only what a watchdog, a sidecar or curl sends.

Hand-written for speed: the standard library's parser uses the e-mail package and costs more than a
small model's run. All sizes are bounded, and ambiguous input (two lengths, folded headers, unknown
codings) is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from carpool.caching import SmallCache

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import BufferedReader

__all__ = ["CutOffError", "ProtocolError", "ReadLimits", "Request", "read_request"]

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
_LINE = re.compile(rb"([!-~]+) ([!-~]+) HTTP/1\.([01])\r?\n").fullmatch
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r?\n").fullmatch
_LENGTH = re.compile(r"[0-9]{1,15}").fullmatch
_BLANK = (b"\r\n", b"\n")
_CHUNK_LINE_BYTES = 1024
_VERSION_UNKNOWN = re.compile(rb".* HTTP/[0-9.]+\r?\n").fullmatch


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Limits of the server's requests and connections."""

    head_bytes: int = 64 * 1024
    body_bytes: int = 64 * 1024 * 1024
    idle_s: float = 75.0
    connections: int = 512


@dataclass(slots=True)
class Request:
    """A complete request; header names are lower case, repeated headers are joined by ``, ``."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes | bytearray
    keep_alive: bool


class ProtocolError(Exception):
    """Raised when a request cannot be served; the connection is closed after ``status``."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class CutOffError(ConnectionError):
    """Raised when the peer closes the connection, or is silent for too long, within a request."""


def read_request(
    stream: BufferedReader[Any], limits: ReadLimits, go_on: Callable[[], None]
) -> Request | None:
    """Return the next request; None if the peer has closed the connection between requests.

    Args:
        stream: The stream to read from.
        limits: Limits of head and body.
        go_on: Called when the peer waits for ``100 Continue`` before it sends the body.

    Raises:
        ProtocolError: The request cannot be served.
        CutOffError: The peer closed the connection in the middle of the request, or was silent for
            the stream's time limit.
    """
    line = stream.readline(limits.head_bytes + 1)
    if line in _BLANK:  # tolerated between requests, RFC 9112 section 2.2
        line = stream.readline(limits.head_bytes + 1)
    if not line:
        return None
    match = _LINE(line)
    if match is None:
        raise _bad_line(line, limits)
    method, target, minor = match.groups()
    headers = _read_headers(stream, limits.head_bytes - len(line))
    connection = headers.get("connection", "").lower()
    keep_alive = "close" not in connection if minor == b"1" else connection == "keep-alive"
    body = _read_body(stream, headers, limits.body_bytes, go_on)
    return Request(method.decode(), target.decode(), headers, body, keep_alive)


def _bad_line(line: bytes, limits: ReadLimits) -> Exception:
    if len(line) > limits.head_bytes:
        return ProtocolError(414, f"the request line is longer than {limits.head_bytes} bytes")
    if not line.endswith(b"\n"):
        return CutOffError()
    if _VERSION_UNKNOWN(line):
        return ProtocolError(505, "expected HTTP/1.1")
    return ProtocolError(400, "the request line is not 'METHOD /path HTTP/1.1'")


def _read_headers(stream: BufferedReader[Any], left_bytes: int) -> dict[str, str]:
    headers: dict[str, str] = {}
    while True:
        line = stream.readline(max(left_bytes, 0) + 1)
        left_bytes -= len(line)
        if left_bytes < 0:
            raise ProtocolError(431, "the request's headers are too large")
        if line in _BLANK:
            return headers
        if not line.endswith(b"\n"):
            raise CutOffError
        key, value = _header(line)
        headers[key] = f"{headers[key]}, {value}" if key in headers else value


@SmallCache
def _header(line: bytes) -> tuple[str, str]:
    """Return a header's name and value; cached, as sidecars repeat the same lines."""
    name, colon, text = line.partition(b":")
    text = text.strip(b" \t\r\n")
    if not colon or not _NAME(name) or b"\r" in text or b"\0" in text:
        raise ProtocolError(400, "a header line is not 'name: value'")
    return name.decode().lower(), text.decode("latin-1")


def _read_body(
    stream: BufferedReader[Any], headers: dict[str, str], limit: int, go_on: Callable[[], None]
) -> bytes | bytearray:
    coding = headers.get("transfer-encoding")
    length = headers.get("content-length")
    if coding is None and length is None:
        return b""
    if coding is not None and length is not None:
        raise ProtocolError(400, "both content-length and transfer-encoding are given")
    if coding is not None and coding.lower() != "chunked":
        raise ProtocolError(501, f"transfer-encoding {coding[:40]!r} is not known, only chunked is")
    size = 0
    if length is not None:
        if not _LENGTH(length):
            raise ProtocolError(400, f"content-length {length[:40]!r} is not a number of bytes")
        size = int(length)
        _check_size(size, limit)
    if headers.get("expect", "").lower() == "100-continue":
        go_on()
    return _read_chunks(stream, limit) if coding else _read_exactly(stream, size)


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        msg = f"the body is larger than {limit} bytes; handler_body_max_mib raises the limit"
        raise ProtocolError(413, msg)


def _read_exactly(stream: BufferedReader[Any], size: int) -> bytearray:
    body = bytearray(size)
    if size and stream.readinto(body) != size:  # None or a part: closed, or silent for too long
        raise CutOffError
    return body


def _read_chunks(stream: BufferedReader[Any], limit: int) -> bytearray:
    body = bytearray()
    while True:
        match = _CHUNK(_read_line(stream, _CHUNK_LINE_BYTES))
        if match is None:
            raise ProtocolError(400, "a chunk does not start with its size")
        size = int(match[1], 16)
        if size == 0:
            _read_headers(stream, _CHUNK_LINE_BYTES)  # trailers are dropped
            return body
        _check_size(len(body) + size, limit)
        body += _read_exactly(stream, size)
        if _read_line(stream, 2) not in _BLANK:
            raise ProtocolError(400, "a chunk does not have its declared length")


def _read_line(stream: BufferedReader[Any], most_bytes: int) -> bytes:
    line = stream.readline(most_bytes)
    if len(line) < most_bytes and not line.endswith(b"\n"):
        raise CutOffError
    return line
