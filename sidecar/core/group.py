"""A group: waiting requests of one compat key and one route, which may share a batch.

Theory of operation
-------------------
A group has two first-in, first-out lanes: one for interactive and one for background requests. A
cancelled request stays in its lane and is skipped when its turn comes.

The earliest departure time and deadline are kept as lower bounds, updated on arrival and recomputed
only when time reaches them, so that the common case (all due at once, or all deadlines equal) costs
nothing. While later requests have later deadlines, as with one objective for all, expired requests
are searched at the head of a lane only: under overload some expire all the time, and hundreds wait
behind them.

A group knows nothing of other groups, nor of when a batch is closed.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import takewhile
from typing import TYPE_CHECKING

from sidecar.core.request import State, advance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.core.background_share import BackgroundShare
    from sidecar.core.dispatch import Route
    from sidecar.core.request import Request

__all__ = ["Group"]

_QUEUED, _BATCHED = State.QUEUED, State.BATCHED  # read for every request: see `request`


class Group:
    """Requests of one compat key and route.

    Args:
        background_share: share between the two lanes, of this group and all others.

    Attributes:
        request_count: number of waiting requests.
        item_count: number of items in them.
    """

    __slots__ = (
        "_background",
        "_background_share",
        "_deadlines_in_order",
        "_departs_after",
        "_interactive",
        "item_count",
        "request_count",
    )

    def __init__(self, background_share: BackgroundShare) -> None:
        self._background_share = background_share
        self._interactive: deque[Request] = deque()
        self._background: deque[Request] = deque()
        self._departs_after = math.inf
        self._deadlines_in_order = True  # in each lane, none is before its predecessor
        self.request_count = 0
        self.item_count = 0

    def push(self, request: Request) -> None:
        """Append a request to its lane."""
        queue = self._background if request.background else self._interactive
        if queue and request.deadline < queue[-1].deadline:
            self._deadlines_in_order = False
        queue.append(request)
        if request.depart < self._departs_after:  # noqa: PLR1730 - every request comes here
            self._departs_after = request.depart
        self.request_count += 1
        self.item_count += request.item_count

    def discard(self, request: Request) -> None:
        """Subtract ``request``, no longer QUEUED, from the counts; it stays in its lane."""
        self.request_count -= 1
        self.item_count -= request.item_count

    @property
    def has_interactive(self) -> bool:
        """Whether any waiting request is interactive."""
        return _head(self._interactive) is not None

    @property
    def route(self) -> Route:
        """Route of its requests."""
        return self.oldest().route

    def oldest(self) -> Request:
        """Return the request that has waited longest; there must be one."""
        oldest, background = _head(self._interactive), _head(self._background)
        if oldest is None or (background is not None and background.id < oldest.id):
            oldest = background
        assert oldest is not None  # noqa: S101 - a group without requests is not kept
        return oldest

    def first(self, items_max: int) -> list[Request]:
        """Return the next requests with at most ``items_max`` items, in order; at least one."""
        return self._next(items_max, math.inf)

    def take(self, items_max: int, bytes_max: float = math.inf) -> list[Request]:
        """Remove the next requests within ``items_max`` and ``bytes_max``; return them as BATCHED.

        At least one is taken, however large it is.
        """
        taken = self._next(items_max, bytes_max)
        for request in taken:
            advance(request, _BATCHED)
        self.request_count -= len(taken)
        self.item_count -= sum([request.item_count for request in taken])
        return taken

    def departs_at(self, now: float) -> float:
        """Return the earliest departure time: exact once it has come, else possibly too early."""
        if self._departs_after <= now:
            if self.oldest().depart <= now:
                return now
            self._departs_after = min(r.depart for r in self)
        return self._departs_after

    def past_deadline(self, now: float) -> list[Request]:
        """Return the requests whose deadline has passed."""
        if not self._deadlines_in_order:
            return [request for request in self if request.deadline <= now]
        return [
            request
            for queue in (self._interactive, self._background)
            for request in takewhile(lambda r: r.deadline <= now, queue)
            if request.state is _QUEUED
        ]

    def last_deadline(self) -> float:
        """Return the later deadline of the last requests in the lanes; ``-inf`` if empty."""
        queues = (self._interactive, self._background)
        return max([queue[-1].deadline for queue in queues if queue], default=-math.inf)

    def first_deadline(self) -> float:
        """Return the earliest deadline; ``inf`` if no request waits."""
        if not self._deadlines_in_order:
            return min((request.deadline for request in self), default=math.inf)
        heads = (_head(self._interactive), _head(self._background))
        return min((head.deadline for head in heads if head), default=math.inf)

    def __iter__(self) -> Iterator[Request]:
        return (r for r in (*self._interactive, *self._background) if r.state is _QUEUED)

    def _next(self, items_max: int, bytes_max: float) -> list[Request]:
        chosen: list[Request] = []
        size_bytes = 0
        for request in self._in_order_of_leaving():
            items_max -= request.item_count
            size_bytes += request.size_bytes
            if chosen and (items_max < 0 or size_bytes > bytes_max):
                break
            chosen.append(request)
            if items_max <= 0:
                break
        return chosen

    def _in_order_of_leaving(self) -> Iterator[Request]:
        _head(self._interactive)  # drops cancelled requests from the head of the lane
        if _head(self._background) is None:
            return _waiting(self._interactive)
        return self._background_share.interleave(
            _waiting(self._interactive), _waiting(self._background)
        )


def _head(queue: deque[Request]) -> Request | None:
    """Return the first request of ``queue`` that still waits; None if there is none."""
    while queue and queue[0].state is not _QUEUED:
        queue.popleft()
    return queue[0] if queue else None


def _waiting(queue: deque[Request]) -> Iterator[Request]:
    return (request for request in queue if request.state is _QUEUED)
