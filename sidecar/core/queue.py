"""The queue of one function: groups of waiting requests, and the counts over all of them.

Requests that may share a batch form a group (`group`); a group is kept while it has requests.
The earliest deadline of all is kept as a lower bound, and recomputed only when time reaches it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sidecar.core.background_share import BackgroundShare
from sidecar.core.group import Group
from sidecar.core.request import State, advance

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from sidecar.core.dispatch import Route
    from sidecar.core.request import Request

__all__ = ["Queue"]


class Queue:
    """All groups, and the number of requests in them.

    Args:
        background_share: least share of the items sent for background requests while
            interactive ones wait too.

    Attributes:
        request_count: number of waiting requests.
        item_count: number of items in them.
    """

    __slots__ = (
        "_background_by_route",
        "_background_items",
        "_background_requests",
        "_background_share",
        "_expires_after",
        "_groups",
        "_interactive_by_route",
        "item_count",
        "request_count",
    )

    def __init__(self, background_share: float = 0.1) -> None:
        self._groups: dict[tuple[Route, Hashable], Group] = {}
        self._expires_after = math.inf
        self._background_share = BackgroundShare(background_share)
        self._background_requests = self._background_items = 0
        self.request_count = 0
        self.item_count = 0
        self._interactive_by_route: dict[Route, int] = {}  # items
        self._background_by_route: dict[Route, int] = {}

    @property
    def items_ahead(self) -> float:
        """Items that will leave before an interactive request that arrives now."""
        if not self._background_requests:
            return self.item_count
        return self._ahead(self.item_count - self._background_items, self._background_items)

    def items_ahead_at(self, share: Callable[[Route], float], *, background: bool) -> float:
        """Return the items that will leave some instances before a request that arrives now.

        Args:
            share: returns the share of a route's requests that these instances execute.
            background: whether the request is a background request.
        """
        interactive = sum([share(r) * items for r, items in self._interactive_by_route.items()])
        waiting = sum([share(r) * items for r, items in self._background_by_route.items()])
        return interactive + waiting if background else self._ahead(interactive, waiting)

    @property
    def interactive_count(self) -> int:
        """Number of interactive requests waiting."""
        return self.request_count - self._background_requests

    def count_of_class(self, request: Request) -> int:
        """Return how many requests of the class of ``request``, interactive or background, wait."""
        background = self._background_requests
        return background if request.background else self.request_count - background

    def push(self, request: Request) -> None:
        """Append a request that was just admitted."""
        key = (request.route, request.key)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(self._background_share)
        group.push(request)
        self._count(request, 1)
        if request.deadline < self._expires_after:  # noqa: PLR1730 - every request comes here
            self._expires_after = request.deadline

    def clear(self) -> list[Request]:
        """Remove and return all requests, in order of arrival; they stay QUEUED."""
        waiting = sorted(self, key=lambda request: request.id)
        self._groups.clear()
        self._expires_after = math.inf
        self._background_requests = self._background_items = 0
        self.request_count = self.item_count = 0
        self._interactive_by_route.clear()
        self._background_by_route.clear()
        self._background_share.deficit = 0.0
        return waiting

    def discard(self, request: Request) -> None:
        """Subtract a request that is not QUEUED any more from the counts; it is skipped later."""
        self._count(request, -1)
        group = self._groups[request.route, request.key]
        group.discard(request)
        if not group.request_count:
            del self._groups[request.route, request.key]

    def groups_in_order(self) -> list[Group]:
        """Return the groups in the order in which they may leave.

        The group with the oldest request comes first. Groups with background requests only come
        after the others, or before them while background requests are short of their share.
        """
        groups = list(self._groups.values())
        if len(groups) > 1:
            background_first = self._background_share.deficit > 0
            groups.sort(key=lambda g: (g.has_interactive is background_first, g.oldest().id))
        return groups

    def take(self, group: Group, items_max: int, bytes_max: float) -> list[Request]:
        """Remove and return the next requests of ``group``, as `Group.take` does."""
        taken = group.take(items_max, bytes_max)
        if self._background_requests:
            for request in taken:
                self._count(request, -1)
        else:
            self.request_count -= len(taken)
            items = sum([request.item_count for request in taken])
            self.item_count -= items
            _add(self._interactive_by_route, taken[0].route, -items)
        if 0 < self._background_requests < self.request_count:
            self._background_share.record(taken)
        else:
            self._background_share.deficit = 0.0
        if not group.request_count:
            del self._groups[taken[-1].route, taken[-1].key]
        return taken

    def give_up(self, group: Group, count: int) -> list[Request]:
        """Remove and return, as EXPIRED, the next ``count`` requests that have a deadline."""
        requests = group.first(group.item_count)
        late = [request for request in requests if request.deadline < math.inf][: max(0, count)]
        for request in late:
            advance(request, State.EXPIRED)
            self.discard(request)
        return late

    def give_up_for_others(self, group: Group, size: int, ends: float) -> list[Request]:
        """Remove and return, as EXPIRED, the next requests whose deadline is before ``ends``.

        Requests are given up only while others take their places, so that ``size`` items still
        leave. None is given up if the last to arrive would be late, too.
        """
        given_up: list[Request] = []
        spare_items = group.item_count - size
        while spare_items > 0 and group.last_deadline() >= ends:
            late = [request for request in group.first(size) if request.deadline < ends]
            for request in late:
                spare_items -= request.item_count
                if spare_items < 0:
                    return given_up
                advance(request, State.EXPIRED)
                self.discard(request)
                given_up.append(request)
            if not late:
                break
        return given_up

    def expire(self, now: float) -> list[Request]:
        """Remove and return, as EXPIRED, the requests whose deadline has passed."""
        if self._expires_after > now:
            return []
        groups = self._groups.values()
        late = [request for group in groups for request in group.past_deadline(now)]
        for request in late:
            advance(request, State.EXPIRED)
            self.discard(request)
        first_deadlines = (group.first_deadline() for group in self._groups.values())
        self._expires_after = min(first_deadlines, default=math.inf)
        return late

    def without(self, reaches: Callable[[Route], bool]) -> Iterator[Request]:
        """Yield the requests of routes for which ``reaches`` is false."""
        for (route, _), group in self._groups.items():
            if not reaches(route):
                yield from group

    @property
    def expires_at(self) -> float:
        """Time before which no request expires."""
        return self._expires_after

    def __iter__(self) -> Iterator[Request]:
        return (r for group in self._groups.values() for r in group)

    def _count(self, request: Request, sign: int) -> None:
        self.request_count += sign
        items = sign * request.item_count
        self.item_count += items
        if not request.background:
            _add(self._interactive_by_route, request.route, items)
        else:
            self._background_requests += sign
            self._background_items += items
            _add(self._background_by_route, request.route, items)

    def _ahead(self, interactive: float, background: float) -> float:
        """Return the items that leave before an interactive request, given those that wait."""
        share = self._background_share.share
        return min(interactive + background, interactive / max(1 - share, 1e-9))


def _add(items_by_route: dict[Route, int], route: Route, items: int) -> None:
    """Add ``items`` to a count; routes without waiting requests have none."""
    of_route = items_by_route.get(route, 0) + items
    if of_route:
        items_by_route[route] = of_route
    else:
        items_by_route.pop(route, None)
