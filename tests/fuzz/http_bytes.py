"""Hypothesis strategies for a client's bytes: requests, damaged ones, noise, and their pieces."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

__all__ = ["Sent", "cuts", "damaged", "noise", "requests", "streams"]

_TOKENS = st.text("abcXYZ09-_!", min_size=1, max_size=12).map(str.encode)
_VALUES = st.binary(max_size=30).map(lambda raw: bytes(b for b in raw if b > 31 and b != 127))
_TARGETS = st.text("abc/%?&=.~", max_size=30).map(lambda text: b"/" + text.encode())
_METHODS = st.sampled_from([b"GET", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH"])
_FRAGMENTS = st.sampled_from(
    [
        b"\r\n",
        b"\n",
        b"\r",
        b"\0",
        b" ",
        b":",
        b"GET / HTTP/1.1\r\n",
        b"host: a\r\n",
        b"content-length: 3\r\n",
        b"content-length: -1\r\n",
        b"transfer-encoding: chunked\r\n",
        b"transfer-encoding: gzip\r\n",
        b"connection: close\r\n",
        b"connection: upgrade\r\nupgrade: h2c\r\n",
        b"expect: 100-continue\r\n",
        b"0\r\n\r\n",
        b"3\r\nabc\r\n",
        b"ffffffff\r\n",
        b"a" * 300,
    ]
)
# Names that frame a request are written by `requests` alone.
_RESERVED = {b"content-length", b"transfer-encoding", b"connection", b"host", b"expect", b"upgrade"}


class Sent(NamedTuple):
    """A request as bytes, and the values that a server should read from it."""

    raw: bytes
    method: str
    target: str
    headers: list[tuple[bytes, bytes]]
    body: bytes


@st.composite
def cuts(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """Draw ``data`` in pieces."""
    places = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


@st.composite
def requests(draw: st.DrawFn) -> Sent:
    """Draw a well-formed request: with a length, in chunks, or without a body."""
    method, target = draw(_METHODS), draw(_TARGETS)
    pairs = draw(st.lists(st.tuples(_TOKENS, _VALUES), max_size=4))
    headers = [(b"Host", b"x")]
    headers += [(name, value.strip()) for name, value in pairs if name.lower() not in _RESERVED]
    framing = draw(st.sampled_from(["none", "length", "chunks"]))
    body = b"" if framing == "none" else draw(st.binary(max_size=60))
    if framing == "length":
        headers.append((b"Content-Length", b"%d" % len(body)))
    elif framing == "chunks":
        headers.append((b"Transfer-Encoding", b"chunked"))
    lines = b"".join([b"%b: %b\r\n" % header for header in headers])
    sent = _chunked(draw, body) if framing == "chunks" else body
    return Sent(
        b"%b %b HTTP/1.1\r\n%b\r\n%b" % (method, target, lines, sent),
        method.decode(),
        target.decode(),
        [(name.lower(), value) for name, value in headers],
        body,
    )


def _chunked(draw: st.DrawFn, body: bytes) -> bytes:
    parts = [part for part in draw(cuts(body)) if part]
    extension = draw(st.sampled_from([b"", b";a", b';a="b"']))
    trailer = draw(st.sampled_from([b"", b"t: u\r\n"]))
    chunks = b"".join([b"%x%b\r\n%b\r\n" % (len(part), extension, part) for part in parts])
    return b"%b0\r\n%b\r\n" % (chunks, trailer)


def noise() -> st.SearchStrategy[bytes]:
    """Return a strategy for bytes that resemble HTTP in places."""
    return st.lists(_FRAGMENTS | st.binary(max_size=20), max_size=12).map(b"".join)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Draw requests in which a piece is missing, repeated, or replaced by noise."""
    raw = b"".join([sent.raw for sent in draw(st.lists(requests(), min_size=1, max_size=3))])
    start = draw(st.integers(0, len(raw)))
    end = min(len(raw), start + draw(st.integers(0, 5)))
    return raw[:start] + draw(_FRAGMENTS | st.binary(max_size=3)) + raw[end:]


def streams() -> st.SearchStrategy[bytes]:
    """Return a strategy for anything that a client may send."""
    whole = st.lists(requests(), max_size=4).map(lambda sent: b"".join([s.raw for s in sent]))
    return whole | damaged() | noise()
