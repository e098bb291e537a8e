"""The waiting requests of one function: all groups of them, and what is counted over all.

Requests that may share a batch form a group (`group`); a group is kept while it has requests.
The first deadline of all is kept as a lower bound, and recomputed only when time reaches it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sidecar.core.balance import Balance
from sidecar.core.group import Group
from sidecar.core.request import State, advance

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from sidecar.core.dispatch import Route
    from sidecar.core.request import Request

__all__ = ["Queue"]


class Queue:
    """All groups, and the number of requests in them.

    Args:
        background_share: least share of the seats that background requests get while others wait
            too.

    Attributes:
        live: requests waiting.
        seats: items that they carry together.
    """

    __slots__ = (
        "_background_live",
        "_background_seats",
        "_balance",
        "_expires_after",
        "_groups",
        "live",
        "seats",
    )

    def __init__(self, background_share: float = 0.1) -> None:
        self._groups: dict[tuple[Route, Hashable], Group] = {}
        self._expires_after = math.inf
        self._balance = Balance(background_share)
        self._background_live = self._background_seats = 0
        self.live = 0
        self.seats = 0

    @property
    def ahead(self) -> float:
        """Seats that will leave before an interactive request that arrives now."""
        if not self._background_live:
            return self.seats
        interactive = self.seats - self._background_seats
        return min(self.seats, interactive / max(1 - self._balance.share, 1e-9))

    @property
    def interactive(self) -> int:
        """Interactive requests waiting."""
        return self.live - self._background_live

    def alike(self, request: Request) -> int:
        """How many requests of the class of ``request`` wait."""
        background = self._background_live
        return background if request.background else self.live - background

    def push(self, request: Request) -> None:
        """Append a request that was just admitted."""
        key = (request.route, request.key)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(self._balance)
        group.push(request)
        self._count(request, 1)
        if request.deadline < self._expires_after:  # noqa: PLR1730 - every request comes here
            self._expires_after = request.deadline

    def clear(self) -> list[Request]:
        """Remove and return all requests, in order of arrival; they stay QUEUED."""
        waiting = sorted(self, key=lambda request: request.id)
        self._groups.clear()
        self._expires_after = math.inf
        self._background_live = self._background_seats = self.live = self.seats = 0
        self._balance.owed = 0.0
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
            owed = self._balance.owed > 0
            groups.sort(key=lambda group: (group.interactive is owed, group.oldest().id))
        return groups

    def take(self, group: Group, seats: int, bytes_max: float) -> list[Request]:
        """Remove and return the next requests of ``group``, as `Group.take` does."""
        taken = group.take(seats, bytes_max)
        if self._background_live:
            for request in taken:
                self._count(request, -1)
        else:
            self.live -= len(taken)
            self.seats -= sum([request.seats for request in taken])
        if 0 < self._background_live < self.live:
            self._balance.settle(taken)
        else:
            self._balance.owed = 0.0
        if not group.live:
            del self._groups[taken[-1].route, taken[-1].key]
        return taken

    def give_up(self, group: Group, count: int) -> list[Request]:
        """Remove and return, as EXPIRED, the next ``count`` requests that have a deadline."""
        bound = [request for request in group.first(group.seats) if request.deadline < math.inf]
        late = bound[: max(0, count)]
        for request in late:
            advance(request, State.EXPIRED)
            self.cancelled(request)
        return late

    def give_up_for_others(self, group: Group, size: int, ends: float) -> list[Request]:
        """Remove and return, as EXPIRED, the next requests whose deadline is before ``ends``.

        Only while others take their seats: ``size`` seats stay occupied. None is given up if the
        last to arrive would be late, too.
        """
        given_up: list[Request] = []
        spare = group.seats - size
        while spare > 0 and group.latest_deadline() >= ends:
            late = [request for request in group.first(size) if request.deadline < ends]
            for request in late:
                spare -= request.seats
                if spare < 0:
                    return given_up
                advance(request, State.EXPIRED)
                self.cancelled(request)
                given_up.append(request)
            if not late:
                break
        return given_up

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
