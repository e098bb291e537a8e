"""Requests that have been read and not parsed yet, while more arrive than can be served.

Theory of operation
-------------------
Reading a request costs about a tenth of serving it. So under overload requests are parked as they
were read, unparsed. The newest, which can still be answered in time, are served, and the oldest,
which cannot, are refused.

Normally `Intake.parking` is false, and connections parse what they read at once. The
application sets it when it has refused a request, or an iteration of the event loop took long. From
then on there is a turn in each iteration:

1. Requests are parsed and served, until the application would refuse requests of that age; at most
   as many as fill a batch, so that responses can be written in between. (With fewer, batches would
   be smaller than without parking, and parking itself would reduce capacity.) As long as
   the oldest has time to spare they are served in order, as after a short interruption all can
   be; else the newest come first.
2. The oldest are refused, if the application refuses requests of that age, in a share of the time
   (`RefusalBudget`). A client that waits for its refusal sends nothing else, which slows a flood
   down to what can be refused.
3. Parking ends when nothing is parked and the application would serve a new request.

A refusal is cheapest for a request that is plain: whole, with a plain length, and without a header
that could change its framing or how the application judges it. Those are answered unparsed; others
are parsed, and the application refuses them itself.

Rules: only a `POST` that begins a new request, on a connection without unanswered ones, is parked;
probes are always answered. The bytes of a connection are never reordered. The content of requests
is not known here: the application judges each of them that is parsed.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from carpool.http.refusal_budget import RefusalBudget

__all__ = ["Intake", "Parkable"]

log = logging.getLogger(__name__)

_FEWEST_AT_ONCE, _MOST_AT_ONCE = 32, 128
_HASTE = 2.0  # parked requests are served in order while they could wait for twice as long
_PAUSE_S = 0.001
_ASK_EVERY = 8  # requests; asking whether one would be refused takes a tenth of serving it
_ALIKE_S = 0.001  # requests that were read within this time are treated alike
_LINES = rb"(?:(?!%b)[!#-'*+.^-`|~\w-]+: ?[^\x00-\x1f\x7f]*\r\n)*" % b"|".join(
    (
        rb"content-length",
        rb"transfer-encoding",
        rb"connection(?!: keep-alive\r)",
        rb"expect",
        rb"upgrade",
        rb"accept: ?[^\r\n]*text/event-stream",
        rb"x-carpool-",
    )
)
_PLAIN = re.compile(
    rb"POST /[!-~]* HTTP/1\.1\r\n%bcontent-length: ?(\d{1,10})\r\n%b\r\n" % (_LINES, _LINES),
    re.IGNORECASE,
)


class Parkable(Protocol):
    """Interface of a connection as the intake uses it."""

    def between_requests(self) -> bool:
        """Return whether no request is unanswered or partial."""

    def unpark(self, data: bytes) -> None:
        """Read requests from ``data`` now; the application serves or refuses them."""

    def answer(self, data: bytes, answer: bytes) -> None:
        """Send ``answer`` as the response to the single request in ``data``."""


class Intake:
    """Parks requests under overload.

    Args:
        refuses: Returns whether the application would refuse a request read the given number of
            seconds ago.
        refuse: Has the application count a plain request as refused; returns the response, or
            nothing if the request must be parsed and judged after all.
        soon: Calls a function in the next iteration of the event loop.
        later: Calls a function after some seconds.
        batch_max: Number of requests that fill a batch of the application.
        budget: The time for refusals.

    Attributes:
        parking: Whether connections `park` what they read; the application sets it when it refuses
            a request, or when there is overload.
        waited_s: How long the request that is being parsed was parked.
    """

    __slots__ = (
        "_at_once",
        "_budget",
        "_clock",
        "_due",
        "_later",
        "_parked",
        "_refuse",
        "_refuses",
        "_soon",
        "parking",
        "waited_s",
    )

    def __init__(
        self,
        refuses: Callable[[float], bool],
        refuse: Callable[[], bytes],
        soon: Callable[[Callable[[], None]], object],
        later: Callable[[float, Callable[[], None]], object],
        batch_max: int,
        budget: RefusalBudget,
    ) -> None:
        self._at_once = min(max(batch_max, _FEWEST_AT_ONCE), _MOST_AT_ONCE)
        self._refuses = refuses
        self._refuse = refuse
        self._clock = budget.clock
        self._budget = budget
        self._soon = soon
        self._later = later
        self._parked: OrderedDict[Parkable, tuple[float, bytes]] = OrderedDict()
        self._due = False  # a turn is scheduled
        self.parking = False
        self.waited_s = 0.0

    @property
    def parked(self) -> int:
        """Number of parked requests."""
        return len(self._parked)

    def park(self, connection: Parkable, data: bytes) -> bool:
        """Keep ``data``, just read, for later; return False if it must be parsed now."""
        known = self._parked.get(connection)
        if known:
            self._parked[connection] = (known[0], known[1] + data)
            return True
        if data[:5] != b"POST " or not connection.between_requests():
            return False
        self._parked[connection] = (self._clock(), data)
        if not self._due:
            self._due = True
            self._soon(self._turn)
        return True

    def gone(self, connection: Parkable) -> None:
        """Drop the parked request of ``connection``, as no response is awaited."""
        self._parked.pop(connection, None)

    def stop(self) -> None:
        """Parse all parked requests, as the server is closing or they cannot be judged."""
        while self._parked:
            self._parse(*self._parked.popitem())

    def _turn(self) -> None:
        self._due = False
        try:
            closed = self._serve_and_refuse()
        except Exception:
            log.exception("assessing parked requests failed, so all are parsed")
            self.stop()
            closed = False
        self.parking = closed or bool(self._parked)
        if self._parked:
            self._due = True
            if closed:
                self._later(_PAUSE_S, self._turn)
            else:
                self._soon(self._turn)

    def _serve_and_refuse(self) -> bool:
        """Serve and refuse parked requests; return whether a new one would be refused."""
        self._serve()
        closed = self._refuses(0.0)
        self._budget.spend(self._refuse_oldest)
        return closed

    def _serve(self) -> None:
        """Parse the requests that are served."""
        now, parked = self._clock(), self._parked
        newest = bool(parked) and self._refuses(_HASTE * (now - self._read_at(newest=False)))
        asked_of = -1.0
        for served in range(self._at_once):
            if not parked:
                return
            read_at = self._read_at(newest=newest)
            if served % _ASK_EVERY == 0 or abs(read_at - asked_of) > _ALIKE_S:
                asked_of = read_at
                if self._refuses(now - read_at):
                    return
            self._parse(*parked.popitem(last=newest))
            if self.parking:
                return

    def _refuse_oldest(self) -> bool:
        """Refuse the oldest request if the application does; return whether it was."""
        parked = self._parked
        if not parked or not self._refuses(self._clock() - self._read_at(newest=False)):
            return False
        connection, read = next(iter(parked.items()))
        answer = self._refuse() if _plain(read[1]) else b""
        del parked[connection]
        if answer:
            connection.answer(read[1], answer)
        else:
            self._parse(connection, read)
        return True

    def _read_at(self, *, newest: bool) -> float:
        connections = reversed(self._parked) if newest else iter(self._parked)
        return self._parked[next(connections)][0]

    def _parse(self, connection: Parkable, read: tuple[float, bytes]) -> None:
        self.waited_s = self._clock() - read[0]
        self.parking = False  # until a request is refused
        try:
            connection.unpark(read[1])
        finally:
            self.waited_s = 0.0


def _plain(data: bytes) -> bool:
    """Return whether ``data`` is exactly one request whose head has no unusual parts."""
    head = _PLAIN.match(data)
    return head is not None and head.end() + int(head[1]) == len(data)
