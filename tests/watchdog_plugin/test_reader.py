"""HTTP requests from a stream: what is accepted, what is refused, and the limits."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from watchdog_plugin.reader import CutOffError, ProtocolError, ReadLimits, read_request

if TYPE_CHECKING:
    from watchdog_plugin.reader import Request

LIMITS = ReadLimits(head_bytes=512, body_bytes=100)


def read(raw: bytes, continued: list[bool] | None = None) -> Request | None:
    """Return the first request in ``raw``; ``continued`` records a 100 Continue."""
    stream = io.BufferedReader(io.BytesIO(raw), 64)
    return read_request(stream, LIMITS, lambda: (continued or []).append(True))


def test_a_body_with_a_length_is_read_whole() -> None:
    """The request has method, target, headers in lower case and body."""
    request = read(b"POST /a?b=c HTTP/1.1\r\nX-One: 1\r\ncontent-length: 5\r\n\r\nhello")
    assert request is not None
    assert "POST" == request.method
    assert "/a?b=c" == request.target
    assert {"x-one": "1", "content-length": "5"} == request.headers
    assert b"hello" == request.body
    assert request.keep_alive


def test_chunks_become_one_body() -> None:
    """Chunk extensions and trailers are ignored."""
    request = read(
        b"POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n"
        b"3;note=1\r\nabc\r\nA\r\n0123456789\r\n0\r\nX-Trailer: 1\r\n\r\n"
    )
    assert request is not None
    assert b"abc0123456789" == request.body


def test_requests_follow_each_other_on_one_stream() -> None:
    """The reader returns one request per call, and None at the end."""
    stream = io.BufferedReader(io.BytesIO(b"GET /1 HTTP/1.1\r\n\r\n\r\nGET /2 HTTP/1.1\r\n\r\n"))
    requests = [read_request(stream, LIMITS, lambda: None) for _ in range(3)]
    assert ["/1", "/2", None] == [request and request.target for request in requests]


def test_a_repeated_header_is_joined() -> None:
    """Both values are kept."""
    request = read(b"GET / HTTP/1.1\r\na: 1\r\nA: 2\r\n\r\n")
    assert request is not None
    assert {"a": "1, 2"} == request.headers


@pytest.mark.parametrize(
    ("line", "keep_alive"),
    [
        (b"GET / HTTP/1.1\r\n", True),
        (b"GET / HTTP/1.1\r\nconnection: close\r\n", False),
        (b"GET / HTTP/1.0\r\n", False),
        (b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n", True),
    ],
)
def test_keep_alive_follows_version_and_header(
    line: bytes,
    keep_alive: bool,  # noqa: FBT001  a column of the table
) -> None:
    """HTTP/1.1 keeps it alive unless asked to close it, and HTTP/1.0 only if asked to keep it."""
    request = read(line + b"\r\n")
    assert request is not None
    assert keep_alive == request.keep_alive


def test_expect_header_gets_100_continue() -> None:
    """A request with Expect: 100-continue gets 100 Continue."""
    continued = [False]
    read(b"POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\nok", continued)
    assert [False, True] == continued


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"GET /" + b"a" * 600 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\na: " + b"b" * 600 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\na: 1\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nname : 1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\na: x\ry\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: 101\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n65\r\n", 413),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nabcd\r\n", 400),
    ],
)
def test_invalid_requests_are_refused(raw: bytes, status: int) -> None:
    """Malformed, ambiguous and oversized requests each get their own status."""
    with pytest.raises(ProtocolError) as refused:
        read(raw)
    assert status == refused.value.status


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HT",
        b"GET / HTTP/1.1\r\na: 1",
        b"POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nhel",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r",
    ],
)
def test_truncated_request_ends_connection(raw: bytes) -> None:
    """A cut-off request ends the connection without a response."""
    with pytest.raises(CutOffError):
        read(raw)
