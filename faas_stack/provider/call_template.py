"""What calls with the same target and headers are passed on with; computed once for all of them.

Callers repeat themselves: what differs from call to call is an identifier, a time, a trace. So all
else of a request's head is read and written once, and looked up from then on.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from carpool import durations

if TYPE_CHECKING:
    from collections.abc import Iterable

    from carpool.http.server import Exchange

__all__ = [
    "HOP_BY_HOP",
    "PREFIX",
    "CallTemplate",
    "CallTemplates",
    "Pairs",
    "lines",
    "named_by_connection",
]

PREFIX = "/function/"
HOP_BY_HOP = frozenset(
    b"connection keep-alive te trailer transfer-encoding upgrade".split()  # codespell:ignore te
)
_STREAMS = (b"text/event-stream", b"application/x-ndjson")
_OWN = frozenset(
    b"x-call-id x-start-time x-forwarded-for x-carpool-user traceparent tracestate".split()
)
_REMEMBERED = 1024
_REMEMBERED_BYTES = 2048  # of target and headers; larger ones do not repeat, and would fill memory

Pairs = list[tuple[bytes, bytes]]
_Shared = tuple[tuple[bytes, bytes], ...]


class CallTemplate(NamedTuple):
    """What calls with the same target and the same repeated headers share.

    Attributes:
        name: of the function, as the path has it.
        target: for the replica.
        lines: of the headers for the replica, as sent.
        head: the same with method and target, as `carpool.http.call_frames` has it.
        own_s: how long the caller gives it by ``X-Timeout``; ``inf``: it says nothing.
        streams: whether the caller asks for an answer in pieces.
        dropped: headers that the caller declares to be for this hop only.
    """

    name: str
    target: str
    lines: bytes
    head: bytes
    own_s: float
    streams: bool
    dropped: frozenset[bytes]


class CallTemplates:
    """Those of the last different calls."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, _Shared], CallTemplate] = {}

    def split(self, exchange: Exchange) -> tuple[CallTemplate, Pairs]:
        """A request's template, and those of its headers for the replica that are its own."""
        own: Pairs = []
        shared: Pairs = []
        for pair in exchange.headers:
            name = pair[0]
            if name in _OWN:
                own.append(pair)
            elif name != b"content-length":
                shared.append(pair)
        key = exchange.method, exchange.target, tuple(shared)
        template = self._known.get(key) or self._new(*key)
        if own and template.dropped:
            own = [pair for pair in own if pair[0] not in template.dropped]
        return template, own

    def _new(self, method: str, target: str, headers: _Shared) -> CallTemplate:
        """One that was not there, remembered unless it is large."""
        template = _template(method, target, headers)
        sizes = [len(name) + len(value) for name, value in headers]
        if len(target) + sum(sizes) <= _REMEMBERED_BYTES:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[method, target, headers] = template
        return template


def lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Headers as sent."""
    return b"".join([b"%b: %b\r\n" % pair for pair in headers])


def named_by_connection(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Headers that ``Connection`` declares to be for this hop only."""
    values = [value for name, value in headers if name == b"connection"]
    return frozenset(word.strip().lower() for value in values for word in value.split(b","))


def _template(method: str, target: str, headers: _Shared) -> CallTemplate:
    path, question, query = target[len(PREFIX) :].partition("?")
    name, _, rest = path.partition("/")
    dropped, last = named_by_connection(headers), dict(headers)
    kept = [pair for pair in headers if _passes(*pair) and pair[0] not in dropped]
    if b"host" in last and not any(name == b"x-forwarded-host" for name, _ in kept):
        kept.append((b"x-forwarded-host", last[b"host"]))
    accept, own_target = last.get(b"accept", b""), f"/{rest}{question}{query}"
    return CallTemplate(
        name=name,
        target=own_target,
        lines=lines(kept),
        head=f"{method} {own_target}\n".encode("latin-1") + lines(kept).replace(b"\r\n", b"\n"),
        own_s=_own_limit_s(last.get(b"x-timeout")),
        streams=any(media_type in accept for media_type in _STREAMS),
        dropped=dropped,
    )


def _passes(name: bytes, value: bytes) -> bool:
    """Whether a header goes to the replica, if ``Connection`` does not name it."""
    if name in HOP_BY_HOP or name == b"host" or name.startswith(b"proxy-"):
        return False
    return name != b"x-timeout" or _timeout_s(value) != math.inf  # would lift the watchdog's limit


def _own_limit_s(value: bytes | None) -> float:
    """What the caller gives a call, ``inf`` where it says nothing."""
    limit_s = _timeout_s(value) if value else None
    return math.inf if limit_s is None else limit_s


def _timeout_s(value: bytes) -> float | None:
    """The limit that ``X-Timeout`` sets, ``inf`` for none; None where the watchdog ignores it."""
    try:
        limit_s = durations.parse(value.decode("latin-1").strip())
    except durations.DurationError:
        return None
    return limit_s if limit_s > 0 else math.inf
