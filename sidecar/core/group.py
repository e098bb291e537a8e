"""Waiting requests that may share a batch: those of one compat key and one route.

Theory of operation
-------------------
There are two lanes, each first in, first out: interactive requests, and background ones. Cancelled
requests stay in place and are skipped when their turn comes.

Departure times and deadlines are kept as lower bounds, updated on arrival and recomputed only when
time reaches them, so that the common case (everything due at once, or all deadlines equal) costs
nothing. While later requests have later deadlines, as with one budget for all, late ones are looked
for at the front alone: under overload some expire all the time, and hundreds wait behind.

Other groups are not known here, nor when a batch is closed.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import takewhile
from typing import TYPE_CHECKING

from sidecar.core.request import State, advance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.core.balance import Balance
    from sidecar.core.dispatch import Route
    from sidecar.core.request import Request

__all__ = ["Group"]


class Group:
    """Requests of one compat key and route.

    Args:
        balance: between the two lanes, of this group and all others.

    Attributes:
        live: how many wait.
        seats: how many items they carry together.
    """

    __slots__ = (
        "_background",
        "_balance",
        "_departs_after",
        "_in_order",
        "_interactive",
        "live",
        "seats",
    )

    def __init__(self, balance: Balance) -> None:
        self._balance = balance
        self._interactive: deque[Request] = deque()
        self._background: deque[Request] = deque()
        self._departs_after = math.inf
        self._in_order = True  # deadlines never fall along a lane
        self.live = 0
        self.seats = 0

    def push(self, request: Request) -> None:
        """Append a request to its lane."""
        lane = self._background if request.background else self._interactive
        if lane and request.deadline < lane[-1].deadline:
            self._in_order = False
        lane.append(request)
        if request.depart < self._departs_after:  # noqa: PLR1730 - every request comes here
            self._departs_after = request.depart
        self.live += 1
        self.seats += request.seats

    def left(self, request: Request) -> None:
        """Note that ``request`` does not wait here any more."""
        self.live -= 1
        self.seats -= request.seats

    @property
    def interactive(self) -> bool:
        """Whether interactive requests are among those that wait."""
        return _front(self._interactive) is not None

    @property
    def route(self) -> Route:
        """Where they may go."""
        return self.oldest().route

    def oldest(self) -> Request:
        """The request that has waited longest; there must be one."""
        front, back = _front(self._interactive), _front(self._background)
        if front is None or (back is not None and back.id < front.id):
            front = back
        assert front is not None  # noqa: S101 - a group without requests is not kept
        return front

    def first(self, seats: int) -> list[Request]:
        """The next requests that fit in ``seats``, in order; one at least if ``seats``."""
        return self._next(seats, math.inf)

    def take(self, seats: int, bytes_max: float = math.inf) -> list[Request]:
        """Remove and return, as BATCHED, the next that fit in ``seats`` and ``bytes_max``.

        At least one is taken, however large it is.
        """
        taken = self._next(seats, bytes_max)
        for request in taken:
            advance(request, State.BATCHED)
        self.live -= len(taken)
        self.seats -= sum([request.seats for request in taken])
        return taken

    def departs_at(self, now: float) -> float:
        """The earliest departure time: exact once it has come, else possibly too early."""
        if self._departs_after <= now:
            if self.oldest().depart <= now:
                return now
            self._departs_after = min(r.depart for r in self)
        return self._departs_after

    def late(self, now: float) -> list[Request]:
        """Requests whose deadline has passed."""
        if not self._in_order:
            return [request for request in self if request.deadline <= now]
        return [
            request
            for lane in (self._interactive, self._background)
            for request in takewhile(lambda r: r.deadline <= now, lane)
            if request.state is State.QUEUED
        ]

    def latest_deadline(self) -> float:
        """The deadline of the last to arrive."""
        lanes = (self._interactive, self._background)
        return max([lane[-1].deadline for lane in lanes if lane], default=-math.inf)

    def expires_at(self) -> float:
        """The earliest deadline."""
        if not self._in_order:
            return min((request.deadline for request in self), default=math.inf)
        fronts = (_front(self._interactive), _front(self._background))
        return min((front.deadline for front in fronts if front), default=math.inf)

    def __iter__(self) -> Iterator[Request]:
        return (r for r in (*self._interactive, *self._background) if r.state is State.QUEUED)

    def _next(self, seats: int, bytes_max: float) -> list[Request]:
        chosen: list[Request] = []
        size_bytes = 0
        for request in self._boarding():
            seats -= request.seats
            size_bytes += request.size_bytes
            if chosen and (seats < 0 or size_bytes > bytes_max):
                break
            chosen.append(request)
            if seats <= 0:
                break
        return chosen

    def _boarding(self) -> Iterator[Request]:
        """The waiting requests, in the order in which they leave."""
        _front(self._interactive)  # cancelled requests are dropped from the fronts
        if _front(self._background) is None:
            return _waiting(self._interactive)
        return self._balance.merged(_waiting(self._interactive), _waiting(self._background))


def _front(lane: deque[Request]) -> Request | None:
    """The first of ``lane`` that still waits, None if there is none."""
    while lane and lane[0].state is not State.QUEUED:
        lane.popleft()
    return lane[0] if lane else None


def _waiting(lane: deque[Request]) -> Iterator[Request]:
    return (request for request in lane if request.state is State.QUEUED)
