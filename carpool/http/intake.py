"""What has been read and not parsed yet, while there is more of it than can be served in time.

Theory of operation
-------------------
Reading a socket costs a tenth of serving its request. So when reads come faster than requests can
be served, they are parked, unparsed, with the time at which they were read. That is so in two
cases: the reads of one iteration of the event loop have taken longer than `Pace.quantum_s`, or the
application says that it would refuse whatever comes (`closed`).

At the end of each iteration the freshest are parsed and served, for at most a quantum: under
overload who came last can still be answered in time, who came first cannot. As soon as the freshest
would be refused, so would all others; and who is parked for too long is refused in any case, the
oldest first. A refusal is worth little to its caller and nothing to the others, so all refusals
together get no more than `Pace.share` of the time, but for what it takes that nobody is parked for
much longer than `_LONGEST_WAIT_S`; a client whose request is still parked sends no other, which is
what slows a flood down.

A refusal is cheapest for a request whose head is, byte for byte, one that was parsed before: it has
the same framing and means the same, so it is answered from its bytes alone. Every other request is
parsed, and the application judges it as any other.

Rules: only a whole new request on a connection with nothing unanswered is parked, and only a POST,
so that a probe is answered whatever happens; the bytes of a connection are never reordered.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from carpool.http.exchange import Exchange

__all__ = ["Admission", "Intake", "Pace", "Parkable"]

_FREE_READS = 32  # of one iteration, before the time is looked at
_WITH_READING = 1.5  # what a refusal takes with the reading before it, which is not seen here
_LONGEST_WAIT_S = 2.0
_LONGEST_S = 0.0002  # of a refusal; if it was longer, the process was interrupted
_SAVED_S = 0.005  # most time for refusals that is saved up
_PAUSE_S = 0.001
_HEADS_MAX = 1024
_END = b"\r\n\r\n"


class Parkable(Protocol):
    """What the intake needs of a connection."""

    def between_requests(self) -> bool:
        """Whether nothing is unanswered, and nothing has begun."""

    def parse(self, data: bytes) -> None:
        """Read requests from ``data``."""

    def answer_unparsed(self, data: bytes, answer: bytes) -> None:
        """Send ``answer`` to the one request that ``data`` is."""


class Admission(Protocol):
    """What the intake needs of the application."""

    closed: bool

    def refuses(self, waited_s: float) -> bool:
        """Whether a request that was read ``waited_s`` ago would be refused now."""

    def refusal(self, token: str) -> bytes:
        """Count a request like that of which ``token`` was learned; its answer, whole.

        Empty if it is not to be refused after all.
        """


@dataclass(frozen=True, slots=True)
class Pace:
    """How much is parsed and refused.

    Attributes:
        quantum_s: how long the reads of one iteration may take before others are parked.
        share: of the time, that refusals may take.
    """

    quantum_s: float
    share: float = 0.05


class Intake:
    """Parks, parses and refuses.

    Args:
        app: says whether it is closed.
        pace: how much.
        clock: seconds, monotonic.
        soon: calls a function when this iteration of the event loop ends.
        later: calls a function after some seconds.

    Attributes:
        reads: of this iteration; a connection counts them, and asks `holds` beyond `free_reads`.
        waited_s: how long the request that is being parsed was parked.
    """

    __slots__ = (
        "_allowance_s",
        "_app",
        "_clock",
        "_ending",
        "_heads",
        "_later",
        "_overdue",
        "_pace",
        "_parked",
        "_parsing",
        "_refilled",
        "_soon",
        "_until",
        "_waking",
        "free_reads",
        "reads",
        "waited_s",
    )

    def __init__(
        self,
        app: Admission,
        pace: Pace,
        clock: Callable[[], float],
        soon: Callable[[Callable[[], None]], object],
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._app = app
        self._pace = pace
        self._clock = clock
        self._soon = soon
        self._later = later
        self._parked: OrderedDict[Parkable, tuple[float, bytes]] = OrderedDict()
        self._heads: dict[bytes, tuple[int, str]] = {}
        self._parsing = b""
        self._ending = self._waking = False
        self._until = 0.0
        self._allowance_s = 0.0
        self._overdue = 0.0  # refusals for which there was no time
        self._refilled = clock()
        self.free_reads: float = _FREE_READS
        self.reads = 0
        self.waited_s = 0.0

    def __len__(self) -> int:
        return len(self._parked)

    def holds(self, connection: Parkable, data: bytes) -> bool:
        """Whether ``data``, just read, is parked and not to be parsed now."""
        now = self._clock()
        if not self._ending:
            self._end_soon(now)
        known = self._parked.get(connection)
        if known:
            self._parked[connection] = (known[0], known[1] + data)
            return True
        if now < self._until and not self._app.closed:
            return False
        if data[:5] != b"POST " or not connection.between_requests():
            return False
        self._parked[connection] = (now, data)
        return True

    def gone(self, connection: Parkable) -> None:
        """Nobody waits for an answer on ``connection`` any more."""
        self._parked.pop(connection, None)

    def iterated(self) -> None:
        """An iteration of the event loop has ended in which requests were parsed."""
        self.reads = 0

    def closing(self) -> None:
        """The application refuses what comes: every read is asked about from now on."""
        self.free_reads = -1

    def stop(self) -> None:
        """Park nothing from now on, and parse what is parked."""
        self.free_reads = math.inf
        while self._parked:
            self._parse_freshest(self._clock())

    def learn(self, exchange: Exchange, token: str) -> None:
        """``exchange`` has been parsed; others with the same head may be refused unparsed."""
        data = self._parsing
        size = len(data) - len(exchange.body)
        whole = data.find(_END) + len(_END) == size and data.endswith(exchange.body)
        if whole and exchange.keep_alive:
            if len(self._heads) >= _HEADS_MAX:
                self._heads.clear()
            self._heads[data[:size]] = (len(exchange.body), token)

    # -- the end of an iteration ------------------------------------------------------------

    def _end_soon(self, now: float) -> None:
        self._ending = True
        self._until = now + self._pace.quantum_s
        self._soon(self._end)

    def _end(self) -> None:
        self._ending = False
        self.reads = 0
        app, parked, now = self._app, self._parked, self._clock()
        app.closed = app.refuses(0.0)
        until = now + self._pace.quantum_s
        while parked and now < until and not app.refuses(now - self._freshest):
            self._parse_freshest(now)
            now = self._clock()
        self._refuse(now)
        self.free_reads = -1 if app.closed or parked else _FREE_READS
        if parked and not self._ending:
            if now >= until:
                self._end_soon(self._clock())
            elif not self._waking:  # for an instance, or for the time that refusals may take
                self._waking = True
                self._later(_PAUSE_S, self._wake)

    def _wake(self) -> None:
        self._waking = False
        if not self._ending:
            self._end()

    @property
    def _freshest(self) -> float:
        """When the last to be parked was read."""
        return self._parked[next(reversed(self._parked))][0]

    def _parse_freshest(self, now: float) -> None:
        connection, (since, data) = self._parked.popitem()
        self._parse(connection, data, now - since)

    def _parse(self, connection: Parkable, data: bytes, waited_s: float) -> None:
        self._parsing, self.waited_s = data, waited_s
        try:
            connection.parse(data)
        finally:
            self._parsing, self.waited_s = b"", 0.0

    @property
    def parsing(self) -> bool:
        """Whether what is being parsed was parked."""
        return bool(self._parsing)

    def _refuse(self, now: float) -> None:
        """Refuse the oldest of those that are to be, while there is time for it."""
        parked, app = self._parked, self._app
        passed_s, self._refilled = now - self._refilled, now
        self._allowance_s = min(self._allowance_s + self._pace.share * passed_s, _SAVED_S)
        self._overdue += len(parked) * min(passed_s / _LONGEST_WAIT_S, 1.0)
        while parked and (self._allowance_s > 0 or self._overdue >= 1):
            connection, (since, data) = parked.popitem(last=False)
            if not (app.closed or app.refuses(now - since)):
                parked[connection] = (since, data)
                parked.move_to_end(connection, last=False)
                break
            began = self._clock()
            self._refuse_one(connection, data, now - since)
            took_s = min(self._clock() - began, _LONGEST_S)
            self._allowance_s -= _WITH_READING * took_s
            self._overdue -= 1
        self._overdue = min(max(self._overdue, 0.0), len(parked))

    def _refuse_one(self, connection: Parkable, data: bytes, waited_s: float) -> None:
        size = data.find(_END) + len(_END)
        known = self._heads.get(data[:size])
        known = known if known and len(data) == size + known[0] else None
        answer = self._app.refusal(known[1]) if known else b""
        if answer:
            connection.answer_unparsed(data, answer)
        else:
            self._parse(connection, data, waited_s)
