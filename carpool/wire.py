"""The batch wire format between a sidecar and a handler: conversion of bytes to columns and back.

A message is columns first, then shared heads, then the bodies back to back (docs/wire.md)::

    magic    4s   b"CPQ1" a batch of requests, b"CPA1" its answers
    count    u32  items, n
    heads    u32  distinct heads, m
    size     u32  bytes of the head section, each head with its length
    ids      n x u64
    lengths  n x u32  body lengths
    marks    n x f32  requests: seconds left before the deadline (inf: none)
             n x u32  answers: HTTP status
    refs     n x u32  which head the item has
    section  m x (u32 length, bytes)
    padding  zeros up to a multiple of 64
    bodies   back to back

All integers are little-endian. Items of one batch mostly share one head (a batch never mixes
methods, paths or content types), so a head is stored once and parsed once. The bodies start
aligned, so that tensors of equal shape can be viewed as one array without a copy.

This module is independent of HTTP, sockets and policies. Malformed bytes raise `WireError` and no
other exception. A decoded item takes some 300 bytes, so that a message of many empty items takes
fifteen times its own size: a reader of an untrusted sender limits their number.
"""

from __future__ import annotations

import re
import struct
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from carpool.caching import SmallCache
from carpool.errors import FunctionFault

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Buffer = bytes | bytearray | memoryview

__all__ = [
    "CALLED_HEADER",
    "CALLS_HEADER",
    "CONCURRENCY_HEADER",
    "CONTENT_TYPE",
    "CRASHES_HEADER",
    "FRAMING",
    "JSON_LENGTH_HEADER",
    "KEY_HEADER",
    "NOT_BEGUN_HEADER",
    "OWN_HEADERS",
    "PROBE_HEADERS",
    "REPEATABLE_HEADER",
    "STREAM_HEADER",
    "STREAM_RULE_HEADER",
    "STREAM_STATUS",
    "AnswerColumns",
    "Buffer",
    "Head",
    "RequestColumns",
    "WireError",
    "batch_headers",
    "build_head",
    "decode_answer",
    "decode_request",
    "encode_answer",
    "encode_request",
    "parse_head",
    "shared_head",
]

CONTENT_TYPE = "application/vnd.carpool.batch"
NOT_BEGUN_HEADER = "x-carpool-not-begun"  # of an error: no handler has seen the request
REPEATABLE_HEADER = "x-carpool-repeatable"  # of a ready sidecar: handlers may see requests again
CALLED_HEADER = "x-carpool-called"  # of a canary's request: the function that was called
CALLS_HEADER = "x-carpool-calls"  # of a sidecar: it takes calls in bundles (`http.call_frames`)
CRASHES_HEADER = "x-carpool-crashes"  # of a sidecar: its handler's crashes, and the last exit
# By how much the message of a batch may be larger than its bodies and heads, and a single request's
# than its body: a batch of bodies that the first server just accepts must not exceed the next one's
# limit.
OVERHEAD_BYTES = 128 * 1024
CONCURRENCY_HEADER = "x-carpool-at-once"  # of a ready handler: how many batches it works on at once
KEY_HEADER = "x-carpool-key"  # of a batch: shows that its receiver's own sidecar or front sent it
STREAM_RULE_HEADER = "x-carpool-stream-rule"  # of a ready handler: which requests it streams
STREAM_HEADER = "x-carpool-stream"  # of the handler's own answer to a request that is streamed
STREAM_STATUS = 421  # with that header, for an item of a batch that has to be sent alone
# Of an inference request or its answer: bytes of JSON in it, before the tensors that are bytes.
JSON_LENGTH_HEADER = "inference-header-content-length"
# What differs from request to request; the lines of these are the last of a head.
OWN_HEADERS = frozenset(("traceparent", "tracestate", "x-call-id"))
# of-watchdog logs a line for every request but those of Kubernetes's probes.
PROBE_HEADERS = (("user-agent", "kube-probe/carpool"),)

# Headers of a connection and not of an answer: each server on the way writes its own.
FRAMING = frozenset(
    (
        "connection",
        "content-length",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)

_REQUEST = b"CPQ1"
_ANSWER = b"CPA1"
_PREFIX = struct.Struct("<4sIII")
_ALIGNMENT = 64
_ITEM_BYTES = 8 + 4 + 4 + 4
# RFC 9110, section 5: other bytes could change their meaning on the way, or be replaced.
_LINE = re.compile(r"[ -~\x80-\xff]*").fullmatch
_OWN_LINES = re.compile(
    rb"\n(?:(?:%b): [\t -~\x80-\xff]*\n)+\Z" % "|".join(sorted(OWN_HEADERS)).encode()
).search
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ([\t -~\x80-\xff]*)").fullmatch


def batch_headers(key: str) -> tuple[tuple[str, str], ...]:
    """Return the headers of a batch's POST; ``key`` is the key its receiver asks for, if any."""
    shown = ((KEY_HEADER, key),) if key else ()
    return (("content-type", CONTENT_TYPE), *PROBE_HEADERS, *shown)


class WireError(FunctionFault):
    """Raised for bytes that are not a batch message."""


class RequestColumns(NamedTuple):
    """A decoded batch of n requests; every column has n entries."""

    ids: tuple[int, ...]
    remaining_s: tuple[float, ...]
    heads: tuple[bytes, ...]
    bodies: list[memoryview]


class AnswerColumns(NamedTuple):
    """The decoded answers to a batch of n requests; every column has n entries."""

    ids: tuple[int, ...]
    statuses: tuple[int, ...]
    heads: tuple[bytes, ...]
    bodies: list[memoryview]


class Head(NamedTuple):
    """A parsed head: ``METHOD /path`` (empty in an answer) and headers, names in lower case."""

    first_line: str
    headers: tuple[tuple[str, str], ...]


def encode_request(
    ids: Sequence[int],
    remaining_s: Sequence[float],
    heads: Sequence[bytes],
    bodies: Sequence[Buffer],
) -> bytes:
    """Return the message of a batch's columns; ``remaining_s`` is ``inf`` without a deadline."""
    return _encode(_REQUEST, "f", ids, remaining_s, heads, bodies)


def encode_answer(
    ids: Sequence[int],
    statuses: Sequence[int],
    heads: Sequence[bytes],
    bodies: Sequence[Buffer],
) -> bytes:
    """Return the message of the columns of a batch's answers, with a status each."""
    return _encode(_ANSWER, "I", ids, statuses, heads, bodies)


def decode_request(data: Buffer) -> RequestColumns:
    """Return the columns of a batch of requests; bodies are views into ``data``.

    Raises:
        WireError: ``data`` is not a well-formed batch of requests.
    """
    return RequestColumns(*_decode(_REQUEST, "f", data))


def decode_answer(data: Buffer, most: int | None = None) -> AnswerColumns:
    """Return the columns of a batch's answers; bodies are views into ``data``.

    Args:
        data: The message.
        most: Largest number of answers; None if there is no limit.

    Raises:
        WireError: ``data`` is not a well-formed batch of answers, or has more than ``most``.
    """
    return AnswerColumns(*_decode(_ANSWER, "I", data, most))


def build_head(first_line: str, headers: Iterable[tuple[str, str]]) -> bytes:
    """Return a head as bytes: the first line, then ``name: value`` lines, each ended by a newline.

    Raises:
        WireError: a name is not a token, or a value or the first line has a control character or
            one outside Latin-1, which could forge another header or arrive as another one.
    """
    lines = [f"{name.lower()}: {value}" for name, value in headers]
    if not _LINE(first_line):
        msg = f"the first line of a head is not printable Latin-1: {first_line[:80]!r}"
        raise WireError(msg)
    for line in lines:
        if not _HEADER(line):
            raise _no_header(line)
    return "".join([f"{line}\n" for line in (first_line, *lines)]).encode("latin-1")


@SmallCache
def parse_head(head: bytes) -> Head:
    """Parse a head; cached, because batches of one function repeat the same few heads.

    Raises:
        WireError: the first line is missing, or `build_head` would not write the head.
    """
    if not head.endswith(b"\n"):
        msg = "a head does not end with a line break"
        raise WireError(msg)
    first_line, *lines = head.decode("latin-1").split("\n")[:-1]
    if not _LINE(first_line):
        msg = f"the first line of a head is not printable Latin-1: {first_line[:80]!r}"
        raise WireError(msg)
    headers = []
    for line in lines:
        match = _HEADER(line)
        if match is None:
            raise _no_header(line)
        headers.append((match[1], match[2]))
    return Head(first_line, tuple(headers))


def shared_head(head: bytes) -> bytes:
    """Return a head without the lines at its end that belong to one request alone.

    What these leave is the same for most items of a batch, so that it is parsed once for all.
    """
    own = _OWN_LINES(head)
    return head[: own.start() + 1] if own else head


def _no_header(line: str) -> WireError:
    return WireError(
        f"a header is not 'name: value' with a token and printable Latin-1: {line[:80]!r}"
    )


def _encode(
    magic: bytes,
    mark: str,
    ids: Sequence[int],
    marks: Sequence[float],
    heads: Sequence[bytes],
    bodies: Sequence[Buffer],
) -> bytes:
    n = len(ids)
    if not n == len(marks) == len(heads) == len(bodies):
        msg = f"columns differ in length: {n}, {len(marks)}, {len(heads)}, {len(bodies)}"
        raise WireError(msg)
    order: dict[bytes, int] = {}
    refs = [order.setdefault(head, len(order)) for head in heads]
    section = b"".join(len(head).to_bytes(4, "little") + head for head in order)
    try:
        columns = struct.pack(
            f"<{n}Q{n}I{n}{mark}{n}I", *ids, *[len(body) for body in bodies], *marks, *refs
        )
    except (struct.error, OverflowError) as error:
        msg = f"a value does not fit its column: {error}"
        raise WireError(msg) from error
    prefix = _PREFIX.pack(magic, n, len(order), len(section))
    used = len(prefix) + len(columns) + len(section)
    return b"".join((prefix, columns, section, bytes(-used % _ALIGNMENT), *bodies))


def _decode(
    magic: bytes, mark: str, data: Buffer, most: int | None = None
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[bytes, ...], list[memoryview]]:
    view = memoryview(data)
    if len(view) < _PREFIX.size:
        msg = f"a batch message has at least {_PREFIX.size} bytes, this has {len(view)}"
        raise WireError(msg)
    first_bytes, n, distinct, size = _PREFIX.unpack_from(view)
    if first_bytes != magic:
        msg = f"a batch message starts with {magic!r}, this starts with {first_bytes!r}"
        raise WireError(msg)
    if most is not None and n > most:
        msg = f"a batch message of {n} items: expected at most {most}"
        raise WireError(msg)
    section = _PREFIX.size + _ITEM_BYTES * n
    end = section + size
    start = end + -end % _ALIGNMENT
    if start > len(view):
        msg = f"a batch message of {n} items has at least {start} bytes, this has {len(view)}"
        raise WireError(msg)
    columns = struct.unpack_from(f"<{n}Q{n}I{n}{mark}{n}I", view, _PREFIX.size)
    heads = _heads(bytes(view[section:end]), distinct)
    refs = columns[3 * n :]
    if n and max(refs) >= distinct:
        msg = f"an item refers to head {max(refs)} of {distinct}"
        raise WireError(msg)
    return (
        columns[:n],
        columns[2 * n : 3 * n],
        tuple([heads[ref] for ref in refs]),
        _bodies(view, start, columns[n : 2 * n]),
    )


def _heads(section: bytes, distinct: int) -> list[bytes]:
    heads: list[bytes] = []
    offset = 0
    while offset + 4 <= len(section) and len(heads) < distinct:
        end = offset + 4 + int.from_bytes(section[offset : offset + 4], "little")
        heads.append(section[offset + 4 : end])
        offset = end
    if len(heads) != distinct or offset != len(section):
        msg = f"the head section does not hold exactly {distinct} heads"
        raise WireError(msg)
    return heads


def _bodies(view: memoryview, start: int, lengths: Sequence[int]) -> list[memoryview]:
    ends = list(accumulate(lengths, initial=start))
    if ends[-1] != len(view):
        msg = f"the bodies end at byte {ends[-1]}, the message at {len(view)}"
        raise WireError(msg)
    return [view[a:b] for a, b in pairwise(ends)]
