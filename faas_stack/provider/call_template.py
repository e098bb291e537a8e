"""The shared part of calls with the same target and headers, computed once for all of them.

Callers repeat themselves: calls differ only in an identifier, a time or a trace. So the rest of a
request's head is parsed and formatted once, and looked up from then on.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from carpool import durations
from carpool.wire import CALLED_HEADER
from faas_stack.provider.deployment import DEFAULT_NAMESPACE, split_name

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
_OF_THE_PROVIDER = (b"host", CALLED_HEADER.encode())
_REMEMBERED = 1024
_REMEMBERED_BYTES = 2048  # of target and headers; larger ones rarely repeat and would fill memory

Pairs = list[tuple[bytes, bytes]]
_Shared = tuple[tuple[bytes, bytes], ...]


class CallTemplate(NamedTuple):
    """The part shared by calls with the same target and the same repeated headers.

    Attributes:
        function: Name and namespace of the function in the path.
        target: Target for the replica.
        lines: Headers for the replica, as sent.
        head: The same with method and target, in the form of `carpool.http.call_frames`.
        own_s: The caller's time limit by ``X-Timeout``; ``inf`` without one.
        streams: Whether the caller requests a streamed response.
        plain: Whether it is a ``POST`` without headers by which a sidecar judges it differently.
        dropped: Headers that the caller declares to be for this hop only.
    """

    function: tuple[str, str]
    target: str
    lines: bytes
    head: bytes
    own_s: float
    streams: bool
    plain: bool
    dropped: frozenset[bytes]


class CallTemplates:
    """Cache of templates of recent calls.

    Args:
        default_namespace: Namespace of functions that are called without one.
    """

    def __init__(self, default_namespace: str = DEFAULT_NAMESPACE) -> None:
        self._default_namespace = default_namespace
        self._known: dict[tuple[str, str, _Shared], CallTemplate] = {}

    def split(self, exchange: Exchange) -> tuple[CallTemplate, Pairs]:
        """Return a request's template, and its own headers for the replica."""
        known_head = exchange.known_head
        if known_head is None:
            return self._split(exchange)
        if known_head.derived is None:
            known_head.derived = self._split(exchange)
        split: tuple[CallTemplate, Pairs] = known_head.derived
        return split

    def _split(self, exchange: Exchange) -> tuple[CallTemplate, Pairs]:
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
        """Create a template and cache it unless it is large."""
        template = _template(method, target, headers, self._default_namespace)
        sizes = [len(name) + len(value) for name, value in headers]
        if len(target) + sum(sizes) <= _REMEMBERED_BYTES:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[method, target, headers] = template
        return template


def lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return headers as sent."""
    return b"".join([b"%b: %b\r\n" % pair for pair in headers])


def named_by_connection(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Return the headers that ``Connection`` declares to be for this hop only."""
    values = [value for name, value in headers if name == b"connection"]
    return frozenset(word.strip().lower() for value in values for word in value.split(b","))


def _template(method: str, target: str, headers: _Shared, default_namespace: str) -> CallTemplate:
    path, question, query = target[len(PREFIX) :].partition("?")
    name, _, rest = path.partition("/")
    dropped, last = named_by_connection(headers), dict(headers)
    kept = [pair for pair in headers if _passes(*pair) and pair[0] not in dropped]
    if b"host" in last and not any(name == b"x-forwarded-host" for name, _ in kept):
        kept.append((b"x-forwarded-host", last[b"host"]))
    accept, own_target = last.get(b"accept", b""), f"/{rest}{question}{query}"
    return CallTemplate(
        function=split_name(name, "", default_namespace),
        target=own_target,
        lines=lines(kept),
        head=f"{method} {own_target}\n".encode("latin-1") + lines(kept).replace(b"\r\n", b"\n"),
        own_s=_own_limit_s(last.get(b"x-timeout")),
        streams=any(media_type in accept for media_type in _STREAMS),
        plain=method == "POST" and not any(n.startswith(b"x-carpool-") for n in last),
        dropped=dropped,
    )


def _passes(name: bytes, value: bytes) -> bool:
    """Return whether a header is passed to the replica, if ``Connection`` does not name it."""
    if name in HOP_BY_HOP or name in _OF_THE_PROVIDER or name.startswith(b"proxy-"):
        return False
    return name != b"x-timeout" or _timeout_s(value) != math.inf  # would lift the watchdog's limit


def _own_limit_s(value: bytes | None) -> float:
    """Return the caller's time limit, ``inf`` if there is none."""
    limit_s = _timeout_s(value) if value else None
    return math.inf if limit_s is None else limit_s


def _timeout_s(value: bytes) -> float | None:
    """Return the limit of ``X-Timeout``; ``inf`` if disabled. None if the watchdog ignores it."""
    try:
        limit_s = durations.parse(value.decode("latin-1").strip())
    except durations.DurationError:
        return None
    return limit_s if limit_s > 0 else math.inf
