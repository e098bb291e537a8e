"""How a provider and a sidecar exchange calls in bundles: the frames of one kept connection.

The provider requests ``GET /_/calls`` with ``Upgrade: carpool-calls``, and starts once it has
received status 101. From then on each side sends frames, a length (u32, little-endian) and a
message:

    CPQ1  to the sidecar: calls in the batch wire format (`carpool.wire`). The head of a call has
          method, target and the headers that other calls repeat; its body is its own headers
          (``name: value`` lines), an empty line, and the request's body
    CPC1  to the sidecar: the ids (n x u64) of calls whose callers have left
    CPA1  to the provider: responses in the same format, in any order; status 0: the connection
          would have been closed without a response
    CPE1  to the provider: use another connection for further calls; those on this one are still
          answered
    CPF1  to the provider: the next answers are marked, as a call that came now would be refused;
          with the time that a call may take, in ms (u32)
    CPR1  to the sidecar: how many calls (u32) the provider has refused in its place

This module handles bytes only. Malformed data raises `WireError`.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

from carpool.http.exchange import KnownHead
from carpool.wire import WireError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from carpool.wire import Buffer

__all__ = [
    "ANSWERS",
    "BROKEN_OFF",
    "BUNDLE_BYTES",
    "BUNDLE_CALLS",
    "CALLS",
    "CALL_BYTES",
    "CANCELLED",
    "ENDED",
    "FULL",
    "MOST_ANSWERS",
    "PATH",
    "PROTOCOL",
    "REFUSED",
    "SLACK_BYTES",
    "FrameReader",
    "answer_lines",
    "call_head",
    "cancelled",
    "content",
    "frame",
    "ids",
    "number",
    "numbered",
    "only_answer",
    "split",
]

PATH = "/_/calls"
PROTOCOL = b"carpool-calls"
CALLS, CANCELLED, ANSWERS, ENDED = b"CPQ1", b"CPC1", b"CPA1", b"CPE1"
FULL, REFUSED = b"CPF1", b"CPR1"
BROKEN_OFF = 0  # the status of a call that is not answered
CALL_BYTES = 64 * 1024  # the largest body that travels with others
# From these sizes on, a bundle leaves before the end of the iteration: its receiver works on it
# while the sender continues to read, instead of afterwards.
BUNDLE_CALLS, BUNDLE_BYTES = 64, 256 * 1024
MOST_ANSWERS = (
    1024  # in one message, whose sender could otherwise use much of its receiver's memory
)
SLACK_BYTES = 1024 * 1024  # what a frame may have besides its largest body: others, and all heads
_LENGTH_BYTES = 4
_NUMBERED = struct.Struct("<4sI")
_BEGINNING = struct.Struct("<4sIIIQ")  # of answers: as in `wire`, with the first id
_FIELD = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t -~\x80-\xff]*\n"
_FIELDS = re.compile(rb"(?:%b)*" % _FIELD).fullmatch
# What the provider adds to a call, in its order: nearly all calls have these and no others.
_ADDED = re.compile(
    rb"x-call-id: ([!-~]*)\nx-forwarded-for: ([ -~]*)\nx-start-time: ([!-~]*)\n\n"
).match
_HEAD = re.compile(rb"[A-Z]+ [!-~\x80-\xff]+\n(?:%b)*" % _FIELD).fullmatch

Pairs = tuple[tuple[bytes, bytes], ...]


class FrameReader:
    """Splits received bytes into messages.

    Args:
        limit_bytes: Largest message.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._rest = bytearray()
        self._needed = 0
        self._passes_bytes = 0  # of a message that is dropped, and still to come

    @property
    def partial_bytes(self) -> int:
        """Number of bytes received of an incomplete message."""
        return len(self._rest)

    def feed(
        self, data: bytes, dropped: Callable[[memoryview], None] | None = None
    ) -> list[memoryview]:
        """Add received bytes and return the messages that are now complete.

        Raises:
            WireError: one is too large.
        """
        if self._passes_bytes:
            passed = min(self._passes_bytes, len(data))
            self._passes_bytes -= passed
            data = data[passed:]
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return []
            data, self._rest = bytes(self._rest), bytearray()
        view, messages, start, end = memoryview(data), [], 0, len(data)
        largest = _LENGTH_BYTES + self._limit_bytes
        while (stop := self._end_of_message(view, start, dropped)) <= end:
            if stop - start <= largest:
                messages.append(view[start + _LENGTH_BYTES : stop])
            start = stop
        if stop - start > largest:  # it has been dropped
            self._passes_bytes = stop - end
            return messages
        self._rest += view[start:]
        self._needed = stop - start
        return messages

    def _end_of_message(
        self, view: memoryview, start: int, dropped: Callable[[memoryview], None] | None
    ) -> int:
        length = view[start : start + _LENGTH_BYTES]
        if len(length) < _LENGTH_BYTES:
            return start + _LENGTH_BYTES
        size = int.from_bytes(length, "little")
        if size > self._limit_bytes:
            begins = start + _LENGTH_BYTES
            if dropped is None:
                msg = f"a message of {size} bytes: expected at most {self._limit_bytes}"
                raise WireError(msg)
            if len(view) < begins + _BEGINNING.size:
                return begins + _BEGINNING.size
            dropped(view[begins : begins + _BEGINNING.size])
        return start + _LENGTH_BYTES + size


def frame(message: Buffer) -> bytes:
    """Return a message as a frame."""
    return b"".join((len(message).to_bytes(_LENGTH_BYTES, "little"), message))


def content(own_lines: bytes, body: Buffer) -> bytes:
    """Return the body of a call in a bundle; ``own_lines`` are ``name: value`` lines."""
    return b"".join((own_lines, b"\n", body))


def split(view: memoryview) -> tuple[Pairs, bytes, bool]:
    """Return a call's own headers, the request's body, and whether the headers are the usual ones.

    These are the call's id, the client's address and the time of its arrival.

    Raises:
        WireError: there is no empty line, or a line that is no header.
    """
    data = bytes(view)
    if added := _ADDED(data):
        call_id, peer, start = added.groups()
        own = (b"x-call-id", call_id), (b"x-forwarded-for", peer), (b"x-start-time", start)
        return own, data[added.end() :], True
    if data[:1] == b"\n":
        return (), data[1:], True
    end = data.find(b"\n\n") + 1
    if not end:
        msg = "no empty line ends the headers of a call"
        raise WireError(msg)
    return _pairs(data[:end]), data[end + 1 :], False


def call_head(head: bytes) -> KnownHead:
    """Parse the head of a call.

    Raises:
        WireError: it is not the head of a request.
    """
    if not _HEAD(head):
        msg = f"the head of a call is not a request head: {head[:80]!r}"
        raise WireError(msg)
    first, _, rest = head.partition(b"\n")
    method, _, target = first.decode("latin-1").partition(" ")
    return KnownHead(method, target, _pairs(rest))


def answer_lines(head: bytes) -> Pairs:
    """Return the headers of a response from its head in a bundle."""
    if head[:1] != b"\n":
        msg = f"the head of an answer does not begin with an empty line: {head[:80]!r}"
        raise WireError(msg)
    return _pairs(head[1:])


def cancelled(calls: Sequence[int]) -> bytes:
    """Return the message that says that the callers of ``calls`` have left."""
    return CANCELLED + struct.pack(f"<{len(calls)}Q", *calls)


def ids(message: memoryview) -> tuple[int, ...]:
    """Return the ids in a message of `cancelled`.

    Raises:
        WireError: its length is not that of a whole number of ids.
    """
    rest = message[len(CANCELLED) :]
    if len(rest) % 8:
        msg = f"{len(rest)} bytes are not ids of 8 bytes each"
        raise WireError(msg)
    return struct.unpack(f"<{len(rest) // 8}Q", rest)


def numbered(kind: bytes, number: int) -> bytes:
    """Return the message of a kind, `FULL` or `REFUSED`, that has a number."""
    return _NUMBERED.pack(kind, number)


def number(message: memoryview) -> int:
    """Return the number in a message of `numbered`.

    Raises:
        WireError: it has another length.
    """
    if len(message) != _NUMBERED.size:
        msg = f"a message of {len(message)} bytes: expected {_NUMBERED.size}"
        raise WireError(msg)
    return int(_NUMBERED.unpack(message)[1])


def only_answer(beginning: memoryview) -> int:
    """Return the id of the only answer in a message, from the message's first bytes.

    Raises:
        WireError: it is another message, or has several answers.
    """
    magic, count, _, _, call_id = _BEGINNING.unpack(beginning)
    if magic != ANSWERS or count != 1:
        msg = f"a message of {magic!r} and {count} items is too large"
        raise WireError(msg)
    return int(call_id)


def _pairs(lines: bytes) -> Pairs:
    if not _FIELDS(lines):
        msg = f"expected lines of 'name: value': {lines[:80]!r}"
        raise WireError(msg)
    fields = [line.partition(b": ") for line in lines.split(b"\n")[:-1]]
    return tuple([(name.lower(), value) for name, _, value in fields])
