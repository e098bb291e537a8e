"""A function call in progress: its form when passed on, and its time limit.

There are two limits, and the earlier one applies: the caller's own ``X-Timeout``, from the arrival
of the call, and the function's, from when the call is sent to a replica. For a streamed response,
the function's limit applies between chunks instead. Nothing here sends anything or reads a clock.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
import time
from typing import TYPE_CHECKING

from carpool.errors import DeadlineMissed
from carpool.http import call_frames
from carpool.wire import CALLED_HEADER
from faas_stack.provider.call_limit import GRACE_S
from faas_stack.provider.call_template import lines
from faas_stack.provider.canary import VERSION_HEADER

if TYPE_CHECKING:
    from carpool.errors import CarpoolError
    from carpool.http.server import Exchange
    from faas_stack.provider.call_template import CallTemplate, Pairs
    from faas_stack.provider.function import Function
    from faas_stack.provider.replica import Replica

__all__ = ["INTERNAL", "Call", "may_be_bundled"]

INTERNAL = ("x-openfaas-internal", "proxy")  # an error of the platform, not of the function
_CALLED = CALLED_HEADER.encode()
_BUNDLED = frozenset(("GET", "POST", "PUT", "PATCH", "DELETE"))
# A call's id is a UUID of version 8 (RFC 9562): random for this process, then a number.
_ID_PREFIX = b"%08x-%04x-8%03x-8%03x-" % tuple(map(random.getrandbits, (32, 16, 12, 12)))
_numbers = itertools.count(random.getrandbits(47))


class Call:
    """A function call.

    Attributes:
        exchange: The exchange with the client.
        template: The repeated part of what is passed on.
        function: The function that answers the call; None before it is known.
        begun: Whether a replica may have started it.
        has_fallback: Whether another function may answer it, if this one cannot start it.
        replica: The replica that the call was sent to; None between two, and before the first.
        overdue: Why the call was ended, if it took too long.
    """

    __slots__ = (
        "_added",
        "_answering",
        "_called",
        "_deadline",
        "_limit_s",
        "_own",
        "_retried",
        "_retrying",
        "_timed",
        "_version",
        "begun",
        "exchange",
        "function",
        "has_fallback",
        "overdue",
        "replica",
        "template",
    )

    def __init__(self, exchange: Exchange, template: CallTemplate, own: Pairs) -> None:
        self.exchange = exchange
        self.template = template
        given = dict(own)
        self._timed = b"x-start-time" in given
        self._added = b"" if b"x-call-id" in given else b"x-call-id: %b\r\n" % _call_id()
        # In the order of the alphabet, as the gateway sends them: a sidecar expects this order.
        self._own = self._added + lines(own) if own else self._added
        if b"x-forwarded-for" not in given and (peer := exchange.peer):
            self._own += b"x-forwarded-for: %b\r\n" % peer.encode("latin-1")
        self._version = self._called = b""
        self.function: Function | None = None
        self.begun = self.has_fallback = False
        self.replica: Replica | None = None
        self.overdue: DeadlineMissed | None = None
        self._limit_s = math.inf
        self._deadline = exchange.received + template.own_s + GRACE_S
        self._answering = self._retried = self._retrying = False

    def divided_to(self, function: Function, called: Function) -> None:
        """Tell the client which of several functions has the call, and a canary which was called.

        Args:
            function: The function that has the call. If it is a canary, another may have the call
                if it cannot start it.
            called: The function that the client called.
        """
        self.has_fallback = function is not called
        names = [each.deployment.service.encode() for each in (function, called)]
        self._version = b"%b: %b\r\n" % (VERSION_HEADER, names[0])
        self._called = b"%b: %b\r\n" % (_CALLED, names[1]) if self.has_fallback else b""

    def sent_to(self, replica: Replica, limit_s: float, now: float) -> None:
        """Record the replica, and set the call's start time unless the gateway has set it.

        As at the gateway, the time until a function has started does not count towards an
        objective.

        Args:
            replica: The replica, which has to be released later.
            limit_s: Time limit of the function's calls.
            now: Event-loop time, seconds.
        """
        self.replica = replica
        self.begun = True
        if self._limit_s == math.inf:
            self._limit_s = limit_s
            self._deadline = min(self._deadline, now + limit_s)
        if not self._timed:
            self._timed = True
            start = _start_line(now)
            self._added += start
            self._own += start

    @property
    def header_lines(self) -> bytes:
        """Headers for the replica, as sent."""
        return self.template.lines + self._called + self._own

    @property
    def own_lines(self) -> bytes:
        """Headers for the replica that are not in the template, one per line."""
        return (self._called + self._own).replace(b"\r\n", b"\n")

    @property
    def added_lines(self) -> bytes:
        """Headers added by the provider that the client gets, too."""
        return self._added + self._version

    def piece_sent(self, now: float) -> None:
        """Restart the time limit after the client was sent a chunk of the response."""
        self._answering = True
        self._deadline = now + self._limit_s

    def must_stop(self, now: float) -> bool:
        """Return whether the current attempt must be cancelled now.

        This is the case if the call has timed out, or if its replica no longer answers probes and
        another one may have it: only once, as the request itself may be the cause.
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
        if self._deadline == self.exchange.received + self.template.own_s + GRACE_S:
            return f"the {self.template.own_s:g} s that X-Timeout gives it"
        return f"{self._limit_s:g} s, the maximum by its own time limits"

    def use_retry(self) -> bool:
        """Return whether it is sent again after its connection was closed without a response.

        Only once, as the request itself may be the cause, and only if a function may receive it
        twice.
        """
        instance = self.replica and self.replica.instance
        retry = bool(instance and instance.repeatable) and not self._retried
        self._retried = self._retried or retry
        return retry

    def takes_retry(self) -> bool:
        """Return whether it was stopped only to be sent to another replica, and clear that mark."""
        retry = self._retrying and self.overdue is None and not self.exchange.gone
        self._retrying = False
        return retry

    def fail(self, error: CarpoolError) -> int:
        """Tell the client that there is no response, or no more of it; return the status."""
        if self._answering:
            self.exchange.abort()
        else:
            added = [line.partition(": ") for line in self.added_lines.decode().splitlines()]
            headers = [(name, value) for name, _, value in added]
            self.exchange.fail(error, [INTERNAL, *headers])
        return error.status


def may_be_bundled(exchange: Exchange, template: CallTemplate) -> bool:
    """Return whether a call may be sent to a replica in a bundle."""
    small = len(exchange.body) <= call_frames.CALL_BYTES
    return small and exchange.method in _BUNDLED and not template.streams


@functools.lru_cache(maxsize=1)
def _start_line(now: float) -> bytes:
    """Return the header with the start of the calls of one event-loop iteration.

    All of them had arrived when it began, so that one read last has waited as long as it takes.

    Args:
        now: Event-loop time, which is the same throughout an iteration.
    """
    del now
    return b"x-start-time: %d\r\n" % time.time_ns()


def _call_id() -> bytes:
    """Return a UUID; it identifies a call and is no secret."""
    return b"%b%012x" % (_ID_PREFIX, next(_numbers))
