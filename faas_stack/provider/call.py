"""A call of a function under way: in which form it is passed on, and how long it may take.

Two limits hold, whichever ends first: the caller's own ``X-Timeout``, from the arrival of the call,
and the function's, from its leaving for a replica. An answer in pieces has the function's limit
from piece to piece instead. Nothing here sends anything, or looks at a clock.
"""

from __future__ import annotations

import math
import time
import uuid
from typing import TYPE_CHECKING

from carpool import durations
from carpool.errors import DeadlineMissed
from faas_stack.provider.call_limit import GRACE_S

if TYPE_CHECKING:
    from collections.abc import Iterable

    from carpool.errors import CarpoolError
    from carpool.http.server import Exchange
    from faas_stack.provider.replica import Replica

__all__ = ["HOP_BY_HOP", "PREFIX", "Call", "Headers", "named_by_connection"]

PREFIX = "/function/"
HOP_BY_HOP = frozenset(
    b"connection keep-alive te trailer transfer-encoding upgrade".split()  # codespell:ignore te
)
_INTERNAL = ("x-openfaas-internal", "proxy")  # an error of the platform, not of the function
_STREAMS = (b"text/event-stream", b"application/x-ndjson")

Headers = list[tuple[str, str]]


class Call:
    """One call.

    Attributes:
        exchange: with the client.
        target, headers: for the replica.
        added: those of the headers that the client is told, too.
        replica: the one that has the call; None between two, and before the first.
        overdue: why the call was ended, if it took too long.
    """

    __slots__ = (
        "_answering",
        "_deadline",
        "_limit_s",
        "_own_s",
        "_retried",
        "_retrying",
        "_timed",
        "added",
        "exchange",
        "headers",
        "overdue",
        "replica",
        "target",
    )

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        path, question, query = exchange.target[len(PREFIX) :].partition("?")
        self.target = f"/{path.partition('/')[2]}{question}{query}"
        self.added = _call_id(exchange)
        self.headers = _request_headers(exchange) + self.added
        self.replica: Replica | None = None
        self.overdue: DeadlineMissed | None = None
        self._timed = exchange.header(b"x-start-time") is not None
        self._own_s = _own_limit_s(exchange)
        self._limit_s = math.inf
        self._deadline = exchange.received + self._own_s + GRACE_S
        self._answering = self._retried = self._retrying = False

    def sent_to(self, replica: Replica, limit_s: float, now: float) -> None:
        """It goes to a replica: its time begins, unless the gateway has said when it did.

        As at the gateway, to wait until a function has started is not held against an objective.

        Args:
            replica: it has to be released later.
            limit_s: how long the function's calls may take.
            now: event-loop time, seconds.
        """
        self.replica = replica
        if self._limit_s == math.inf:
            self._limit_s = limit_s
            self._deadline = min(self._deadline, now + limit_s)
        if not self._timed:
            self._timed = True
            start = ("x-start-time", str(time.time_ns()))
            self.added.append(start)
            self.headers.append(start)

    @property
    def streams(self) -> bool:
        """Whether the client asks for an answer in pieces."""
        accept = self.exchange.header(b"accept") or b""
        return any(media_type in accept for media_type in _STREAMS)

    def piece_sent(self, now: float) -> None:
        """The client was sent a piece of the answer: there is time for another one."""
        self._answering = True
        self._deadline = now + self._limit_s

    def must_stop(self, now: float) -> bool:
        """Whether what is done for it has to be cancelled now, for whichever reason.

        That is when it is over its time, or when its replica does not answer probes any more and
        another one may have it: once, as what it asks for may be the cause.
        """
        if now >= self._deadline and self.overdue is None:
            self.overdue = DeadlineMissed(f"the function did not answer within {self._within()}")
            return True
        instance = self.replica and self.replica.instance
        if instance and instance.silent and instance.repeatable:
            self._retrying = not (self._answering or self._retried)
            self._retried = True
            return self._retrying
        return False

    def _within(self) -> str:
        if self._deadline == self.exchange.received + self._own_s + GRACE_S:
            return f"the {self._own_s:g} s that X-Timeout gives it"
        return f"{self._limit_s:g} s, the maximum by its own time limits"

    def repeats(self) -> bool:
        """Whether it is sent again, as its connection was closed unanswered.

        Once, as what it asks for may be the cause; and only where a function may see it twice.
        """
        instance = self.replica and self.replica.instance
        repeats = bool(instance and instance.repeatable) and not self._retried
        self._retried = self._retried or repeats
        return repeats

    def takes_retry(self) -> bool:
        """Whether it was stopped only to be sent to another replica, which is to be done now."""
        retry = self._retrying and self.overdue is None and not self.exchange.gone
        self._retrying = False
        return retry

    def fail(self, error: CarpoolError) -> int:
        """Tell the client that there is no answer, or no more of it; the status."""
        if self._answering:
            self.exchange.abort()
        else:
            self.exchange.fail(error, [_INTERNAL, *self.added])
        return error.status


def _request_headers(exchange: Exchange) -> Headers:
    dropped = HOP_BY_HOP | named_by_connection(exchange.headers)
    names = set()
    headers: Headers = []
    for name, value in exchange.headers:
        if name in dropped or name.startswith(b"proxy-") or name in (b"content-length", b"host"):
            continue
        if name == b"x-timeout" and _timeout_s(value) == math.inf:
            continue  # it would remove the watchdog's own limit
        names.add(name)
        headers.append((name.decode("latin-1"), value.decode("latin-1")))
    if b"x-forwarded-host" not in names and (host := exchange.header(b"host")):
        headers.append(("x-forwarded-host", host.decode("latin-1")))
    if b"x-forwarded-for" not in names and (peer := exchange.peer):
        headers.append(("x-forwarded-for", peer))
    return headers


def _call_id(exchange: Exchange) -> Headers:
    """As the gateway adds it to request and answer, if it has not."""
    known = exchange.header(b"x-call-id") is not None
    return [] if known else [("x-call-id", str(uuid.uuid4()))]


def named_by_connection(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Headers that ``Connection`` declares to be for this hop only."""
    values = [value for name, value in headers if name == b"connection"]
    return frozenset(word.strip().lower() for value in values for word in value.split(b","))


def _own_limit_s(exchange: Exchange) -> float:
    """What the caller gives it, ``inf`` where it says nothing."""
    value = exchange.header(b"x-timeout")
    limit_s = _timeout_s(value) if value else None
    return math.inf if limit_s is None else limit_s


def _timeout_s(value: bytes) -> float | None:
    """The limit that ``X-Timeout`` sets, ``inf`` for none; None where the watchdog ignores it."""
    try:
        limit_s = durations.parse(value.decode("latin-1").strip())
    except durations.DurationError:
        return None
    return limit_s if limit_s > 0 else math.inf
