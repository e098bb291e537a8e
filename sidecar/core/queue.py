"""The waiting requests of one function: first in, first out within each compat key.

Cancelled requests stay in place and are skipped when their turn comes. Departure times and
deadlines are kept as lower bounds, updated on arrival and recomputed only when time reaches them,
so that the common case (everything due at once, or all deadlines equal) costs nothing.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from sidecar.core.states import State, advance

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from sidecar.core.request import Request

__all__ = ["Group", "Queue"]


class Group:
    """Requests of one compat key, in order of arrival."""

    __slots__ = ("_departs_after", "_requests", "live")

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()
        self._departs_after = math.inf
        self.live = 0

    def push(self, request: Request) -> None:
        """Append a request."""
        self._requests.append(request)
        self._departs_after = min(self._departs_after, request.depart)
        self.live += 1

    def oldest(self) -> Request:
        """The first request that still waits; there must be one."""
        requests = self._requests
        while requests[0].state is not State.QUEUED:
            requests.popleft()
        return requests[0]

    def first(self, count: int) -> list[Request]:
        """The ``count`` oldest that still wait (fewer if there are fewer)."""
        chosen: list[Request] = []
        if count <= 0:
            return chosen
        for request in self._requests:
            if request.state is State.QUEUED:
                chosen.append(request)
                if len(chosen) == count:
                    break
        return chosen

    def due(self, now: float) -> bool:
        """Whether the departure time of a waiting request has come."""
        return self.departs_at(now) <= now

    def departs_at(self, now: float) -> float:
        """The earliest departure time: exact once it has come, else possibly too early."""
        if self._departs_after <= now:
            if self.oldest().depart <= now:
                return now
            self._departs_after = min(r.depart for r in self)
        return self._departs_after

    def take(self, count: int, bytes_max: float = math.inf) -> list[Request]:
        """Remove and return the ``count`` oldest that still wait, fewer if they are too large.

        At least one is taken, however large it is.
        """
        requests = self._requests
        taken: list[Request] = []
        size_bytes = 0
        while requests and len(taken) < count:
            request = requests[0]
            if request.state is State.QUEUED:
                size_bytes += request.size_bytes
                if taken and size_bytes > bytes_max:
                    break
                taken.append(request)
            requests.popleft()
        self.live -= len(taken)
        return taken

    def __iter__(self) -> Iterator[Request]:
        return (r for r in self._requests if r.state is State.QUEUED)


class Queue:
    """All groups, and the number of requests in them."""

    __slots__ = ("_expires_after", "_groups", "live")

    def __init__(self) -> None:
        self._groups: dict[Hashable, Group] = {}
        self._expires_after = math.inf
        self.live = 0

    def push(self, request: Request) -> None:
        """Append a request that was just admitted."""
        group = self._groups.get(request.key)
        if group is None:
            group = self._groups[request.key] = Group()
        group.push(request)
        self.live += 1
        self._expires_after = min(self._expires_after, request.deadline)

    def cancelled(self, request: Request) -> None:
        """Note that a waiting request is not QUEUED any more; it is skipped from now on."""
        self.live -= 1
        group = self._groups[request.key]
        group.live -= 1
        if not group.live:
            del self._groups[request.key]

    def by_age(self) -> list[Group]:
        """The groups that have requests waiting, the one with the oldest request first."""
        groups = list(self._groups.values())
        if len(groups) > 1:
            groups.sort(key=lambda group: group.oldest().id)
        return groups

    def take(self, group: Group, count: int, bytes_max: float) -> list[Request]:
        """Remove and return the oldest waiting requests of ``group``, as `Group.take` does."""
        taken = group.take(count, bytes_max)
        self.live -= len(taken)
        if not group.live:
            del self._groups[taken[-1].key]
        return taken

    def give_up(self, group: Group, count: int) -> list[Request]:
        """Remove and return, as EXPIRED, those of the ``count`` oldest that have a deadline."""
        late = [request for request in group.first(count) if request.deadline < math.inf]
        for request in late:
            advance(request, State.EXPIRED)
            self.cancelled(request)
        return late

    def expire(self, now: float) -> list[Request]:
        """Remove and return, as EXPIRED, the requests whose deadline has passed."""
        if self._expires_after > now:
            return []
        late = [r for group in self._groups.values() for r in group if r.deadline <= now]
        for request in late:
            advance(request, State.EXPIRED)
            self.cancelled(request)
        waiting = (r.deadline for group in self._groups.values() for r in group)
        self._expires_after = min(waiting, default=math.inf)
        return late

    @property
    def expires_at(self) -> float:
        """No request expires before this time."""
        return self._expires_after

    def __iter__(self) -> Iterator[Request]:
        return (r for group in self._groups.values() for r in group)
