"""The soak's requests: a seeded stream of marked ones, each with the statuses it may get.

This module knows nothing of sockets, of the sidecar's internals, or of how an answer is fetched.
"""

from __future__ import annotations

import enum
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

__all__ = ["APPS", "Answer", "Asked", "Kind", "stream"]

APPS = ("web", "car", "mail")
_BLOCK_BYTES = 1024 * 1024
_LARGE_BYTES = (100 * 1024, 600 * 1024)
_STALE_S = 240  # spent on the way, by the gateway's stamp: more than the objective
_KNOWN_OFFENDERS = 5  # bodies that come again and again, so that they are recognised
_ROWS = (2, 12)
_TOO_MANY_ROWS = (40, 64)  # more than the largest batch: such a request is sent alone


class Kind(enum.Enum):
    """Behaviour of a request or of its client."""

    PLAIN = "plain"
    SEVERAL = "several items"
    LARGE = "large"
    TIMED = "with a timeout"
    HURRIED = "with hardly any time"
    DRIBBLED = "sent slowly"
    SIPPED = "read slowly"
    LEAVING = "client leaves"
    CUT_OFF = "client breaks off"
    STALE = "too late on arrival"
    NONSENSE = "of no class"
    POISON = "fails its batch"
    BAD = "fails alone"
    DEADLY = "kills its handler"


_SHARES = {
    Kind.SEVERAL: 0.08,
    Kind.LARGE: 0.01,
    Kind.TIMED: 0.08,
    Kind.HURRIED: 0.02,
    Kind.DRIBBLED: 0.01,
    Kind.SIPPED: 0.005,
    Kind.LEAVING: 0.0075,
    Kind.CUT_OFF: 0.0025,
    Kind.STALE: 0.003,
    Kind.NONSENSE: 0.002,
    Kind.POISON: 0.0073,
    Kind.BAD: 0.0025,
    Kind.DEADLY: 0.0002,
}
_SHARES[Kind.PLAIN] = 1 - sum(_SHARES.values())

_ALLOWED = {
    Kind.TIMED: {200, 504},  # never 503: it has time enough to be worth a try
    Kind.HURRIED: {200, 503, 504},
    Kind.LEAVING: set(),  # a client that leaves gets no answer
    Kind.CUT_OFF: set(),
    Kind.STALE: {503, 504},  # refused, by what notices first: shedding or the queue
    Kind.NONSENSE: {400},
    Kind.POISON: {502},
    Kind.BAD: {422},
    Kind.DEADLY: {502},
}


class Answer(NamedTuple):
    """A complete answer; header names in lower case."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


@dataclass(frozen=True, slots=True)
class Asked:
    """A request.

    Attributes:
        mark: A unique text, which the answer contains, too.
        kind: The behaviour.
        head: Request line and headers, as sent.
        body: The body, as sent and as expected in the answer.
        named: Whether a header contains the mark, too.
    """

    mark: str
    kind: Kind
    head: bytes
    body: bytes
    named: bool = False

    def objection(self, answer: Answer) -> str:
        """Return what is wrong with ``answer``; empty if nothing is."""
        status, headers, body = answer
        if status not in _ALLOWED.get(self.kind, {200}):
            return f"{status} {body[:200]!r}"
        if status == 200 and body != self.body:
            return f"the answer of another: {body[:80]!r} for {self.body[:80]!r}"
        if status == 200 and self.named and headers.get(b"x-mark") != self.mark.encode():
            return f"the head of another: x-mark {headers.get(b'x-mark')!r}"
        if self.kind is Kind.BAD and self.mark.encode() not in body:
            return f"the refusal of another: {body[:80]!r}"
        return ""


def stream(rng: Random, count: int, kind: Kind | None = None) -> Iterator[Asked]:
    """Draw ``count`` requests, of every kind or of one."""
    block = rng.randbytes(_BLOCK_BYTES)
    kinds, shares = list(_SHARES), list(_SHARES.values())
    for number in range(count):
        chosen = kind or rng.choices(kinds, shares)[0]
        mark = f"m{number}"
        if chosen is Kind.POISON and rng.random() < 0.5:
            mark = f"again{rng.randrange(_KNOWN_OFFENDERS)}"
        yield _asked(rng, mark, chosen, block)


def _asked(rng: Random, mark: str, kind: Kind, block: bytes) -> Asked:
    target, content_type, body = "/", "text/plain", _text(rng, mark, kind)
    if kind is Kind.SEVERAL:
        target, content_type, body = "/rows", "application/json", _rows(rng, mark)
    elif kind in (Kind.LARGE, Kind.SIPPED):
        target, content_type = "/blob", "application/octet-stream"
        size = rng.randint(*_LARGE_BYTES)
        start = rng.randrange(_BLOCK_BYTES - size)
        body += block[start : start + size]
    named = kind is Kind.PLAIN and rng.random() < 0.1
    headers = {"content-type": content_type, **_headers(rng, kind)}
    if named:
        headers["x-call-id"] = mark
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    first, last = (
        f"POST {target} HTTP/1.1\r\nhost: soak\r\n",
        f"content-length: {len(body)}\r\n\r\n",
    )
    return Asked(mark, kind, "".join((first, *lines, last)).encode(), body, named)


def _text(rng: Random, mark: str, kind: Kind) -> bytes:
    word = {Kind.POISON: "poison", Kind.BAD: "bad", Kind.DEADLY: "deadly"}.get(kind, "echo")
    filler = 0 if kind is Kind.POISON else rng.randrange(200)
    return f"{mark} {word}\n{'.' * filler}".encode()


def _rows(rng: Random, mark: str) -> bytes:
    bounds = _TOO_MANY_ROWS if rng.random() < 0.05 else _ROWS
    return json.dumps({"instances": [[mark, row] for row in range(rng.randint(*bounds))]}).encode()


def _headers(rng: Random, kind: Kind) -> dict[str, str]:
    headers: dict[str, str] = {}
    if rng.random() < 0.6:
        headers["x-carpool-app"] = rng.choice(APPS)
    if rng.random() < 0.25 and kind is not Kind.STALE:
        headers["x-carpool-class"] = "batch"
    if kind is Kind.TIMED:
        headers["x-timeout"] = "1m"
    elif kind is Kind.HURRIED:
        headers["x-timeout"] = f"{rng.randint(3, 20)}ms"
    elif kind is Kind.STALE:
        headers["x-start-time"] = str(time.time_ns() - _STALE_S * 10**9)
    elif kind is Kind.NONSENSE:
        headers["x-carpool-class"] = "first"
    return headers
