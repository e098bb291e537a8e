"""The waiting requests of one function.

Theory of operation
-------------------
Requests that may share a batch (one compat key, one route) form a group. Within it there are two
lanes, each first in, first out: interactive requests, and background ones. Interactive requests
board first and background ones take the seats that they leave empty; yet while both wait, the
background gets its share of the seats, so that it is slowed and never starved. What it is owed is
counted over the whole queue, because the two classes often have different keys.

Cancelled requests stay in place and are skipped when their turn comes. Departure times and
deadlines are kept as lower bounds, updated on arrival and recomputed only when time reaches them,
so that the common case (everything due at once, or all deadlines equal) costs nothing. While those
who come later have later deadlines, as with one budget for all, the late are looked for at the
front alone: under overload somebody expires all the time, and hundreds wait behind.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import takewhile
from typing import TYPE_CHECKING

from sidecar.core.states import State, advance

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from sidecar.core.dispatch import Route
    from sidecar.core.request import Request

__all__ = ["Group", "Queue"]


class Group:
    """Requests of one compat key and route.

    Attributes:
        live: how many wait.
        seats: how many items they carry together.
    """

    __slots__ = (
        "_background",
        "_departs_after",
        "_in_order",
        "_interactive",
        "_queue",
        "live",
        "seats",
    )

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
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
        self._departs_after = min(self._departs_after, request.depart)
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
        """The one that has waited longest; there must be one."""
        front, back = _front(self._interactive), _front(self._background)
        if front is None or (back is not None and back.id < front.id):
            front = back
        assert front is not None  # noqa: S101 - a group without requests is not kept
        return front

    def first(self, seats: int) -> list[Request]:
        """The next to board: as many as fit in ``seats``, in order; one at least if ``seats``."""
        return self._next(seats, math.inf)

    def take(self, seats: int, bytes_max: float = math.inf) -> list[Request]:
        """Remove and return, as BATCHED, the next that fit in ``seats`` and ``bytes_max``.

        At least one is taken, however large it is.
        """
        taken = self._next(seats, bytes_max)
        for request in taken:
            advance(request, State.BATCHED)
            self.left(request)
        return taken

    def departs_at(self, now: float) -> float:
        """The earliest departure time: exact once it has come, else possibly too early."""
        if self._departs_after <= now:
            if self.oldest().depart <= now:
                return now
            self._departs_after = min(r.depart for r in self)
        return self._departs_after

    def late(self, now: float) -> list[Request]:
        """Those whose deadline has passed."""
        if not self._in_order:
            return [request for request in self if request.deadline <= now]
        return [
            request
            for lane in (self._interactive, self._background)
            for request in takewhile(lambda r: r.deadline <= now, lane)
            if request.state is State.QUEUED
        ]

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
        """Those who wait, in the order in which they board."""
        _front(self._interactive)  # those who have left are dropped from the fronts
        if _front(self._background) is None:
            return _waiting(self._interactive)
        return self._merged()

    def _merged(self) -> Iterator[Request]:
        queue = self._queue
        owed = queue.owed
        front, back = _waiting(self._interactive), _waiting(self._background)
        first, second = next(front, None), next(back, None)
        while first and second:
            if owed >= (1 - queue.background_share) * second.seats:
                owed -= (1 - queue.background_share) * second.seats
                yield second
                second = next(back, None)
            else:
                owed += queue.background_share * first.seats
                yield first
                first = next(front, None)
        if first or second:
            yield first or second  # type: ignore[misc]
        yield from front
        yield from back


def _front(lane: deque[Request]) -> Request | None:
    """The first of ``lane`` that still waits, None if there is none."""
    while lane and lane[0].state is not State.QUEUED:
        lane.popleft()
    return lane[0] if lane else None


def _waiting(lane: deque[Request]) -> Iterator[Request]:
    return (request for request in lane if request.state is State.QUEUED)


class Queue:
    """All groups, and the number of requests in them.

    Args:
        background_share: least share of the seats that background requests get while others wait
            too.

    Attributes:
        live: requests waiting.
        seats: items that they carry together.
        owed: seats that the background has not had of its share, negative if it had more.
    """

    __slots__ = (
        "_background_live",
        "_background_seats",
        "_expires_after",
        "_groups",
        "background_share",
        "live",
        "owed",
        "seats",
    )

    def __init__(self, background_share: float = 0.1) -> None:
        self._groups: dict[tuple[Route, Hashable], Group] = {}
        self._expires_after = math.inf
        self.background_share = background_share
        self._background_live = self._background_seats = 0
        self.live = 0
        self.seats = 0
        self.owed = 0.0

    @property
    def ahead(self) -> float:
        """Seats that will leave before an interactive request that arrives now."""
        if not self._background_live:
            return self.seats
        interactive = self.seats - self._background_seats
        return min(self.seats, interactive / max(1 - self.background_share, 1e-9))

    def alike(self, request: Request) -> int:
        """How many requests of the class of ``request`` wait."""
        background = self._background_live
        return background if request.background else self.live - background

    def push(self, request: Request) -> None:
        """Append a request that was just admitted."""
        key = (request.route, request.key)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(self)
        group.push(request)
        self._count(request, 1)
        self._expires_after = min(self._expires_after, request.deadline)

    def clear(self) -> list[Request]:
        """Remove and return everybody, in order of arrival; they are QUEUED still."""
        waiting = sorted(self, key=lambda request: request.id)
        # Groups know their queue: where one were left, the cycle would keep bodies for long.
        self._groups.clear()
        self._expires_after = math.inf
        self._background_live = self._background_seats = self.live = self.seats = 0
        self.owed = 0.0
        return waiting

    def cancelled(self, request: Request) -> None:
        """Note that a waiting request is not QUEUED any more; it is skipped from now on."""
        self._count(request, -1)
        group = self._groups[request.route, request.key]
        group.left(request)
        if not group.live:
            del self._groups[request.route, request.key]

    def in_turn(self) -> list[Group]:
        """The groups that have requests waiting, in the order in which they may leave.

        The one with the oldest request first; those of background requests alone behind the
        others, or before them while they are owed seats.
        """
        groups = list(self._groups.values())
        if len(groups) > 1:
            owed = self.owed > 0
            groups.sort(key=lambda group: (group.interactive is owed, group.oldest().id))
        return groups

    def take(self, group: Group, seats: int, bytes_max: float) -> list[Request]:
        """Remove and return the next to board of ``group``, as `Group.take` does."""
        taken = group.take(seats, bytes_max)
        for request in taken:
            self._count(request, -1)
        if 0 < self._background_live < self.live:
            self._settle(taken)
        else:
            self.owed = 0.0
        if not group.live:
            del self._groups[taken[-1].route, taken[-1].key]
        return taken

    def give_up(self, group: Group, count: int) -> list[Request]:
        """Remove and return, as EXPIRED, the next ``count`` to board that have a deadline."""
        bound = [request for request in group.first(group.seats) if request.deadline < math.inf]
        late = bound[: max(0, count)]
        for request in late:
            advance(request, State.EXPIRED)
            self.cancelled(request)
        return late

    def expire(self, now: float) -> list[Request]:
        """Remove and return, as EXPIRED, the requests whose deadline has passed."""
        if self._expires_after > now:
            return []
        late = [request for group in self._groups.values() for request in group.late(now)]
        for request in late:
            advance(request, State.EXPIRED)
            self.cancelled(request)
        expiries = (group.expires_at() for group in self._groups.values())
        self._expires_after = min(expiries, default=math.inf)
        return late

    @property
    def expires_at(self) -> float:
        """No request expires before this time."""
        return self._expires_after

    def __iter__(self) -> Iterator[Request]:
        return (r for group in self._groups.values() for r in group)

    def _count(self, request: Request, sign: int) -> None:
        self.live += sign
        self.seats += sign * request.seats
        if request.background:
            self._background_live += sign
            self._background_seats += sign * request.seats

    def _settle(self, taken: list[Request]) -> None:
        """What the background is owed after ``taken``; at most one such batch too much."""
        seats = sum([request.seats for request in taken])
        used = sum([request.seats for request in taken if request.background])
        self.owed = max(self.owed + self.background_share * seats - used, -float(seats))
