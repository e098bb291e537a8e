"""Requests of failed batches that wait to be sent again, before anything that still queues."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from sidecar.core.request import State, advance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.core.batch import Lineage
    from sidecar.core.dispatch import Route
    from sidecar.core.request import Request

__all__ = ["Part", "RetryQueue"]


class Part(NamedTuple):
    """Requests to be sent together.

    Attributes:
        requests: at least one.
        attempt: how often they will have been sent together, from 1.
        lineage: the batch that they are a part of, if that was divided.
        deaths: how often an instance has died while it had the one request alone. After the first
            it gets an instance that has nothing else to do.
    """

    requests: list[Request]
    attempt: int
    lineage: Lineage | None
    deaths: int = 0


class RetryQueue:
    """The parts that wait, first in, first out."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: deque[Part] = deque()

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[Part]:
        return iter(self._parts)

    @property
    def requests(self) -> list[Request]:
        """All requests in them that still wait."""
        return [r for part in self._parts for r in part.requests if r.state is State.BATCHED]

    @property
    def expires_at(self) -> float:
        """The earliest deadline among them; ``inf`` if there is none."""
        return min((request.deadline for request in self.requests), default=math.inf)

    def add(self, part: Part) -> None:
        """Append a part; its members are BATCHED from now on."""
        for request in part.requests:
            advance(request, State.BATCHED)
        self._parts.append(part)

    def take(self, part: Part, seats: int) -> list[Part]:
        """Remove what fits in ``seats`` of ``part``, one request at least.

        Returns:
            What was removed, and the rest, which waits, if there is any.
        """
        at, fits = self._parts.index(part), 1
        seats -= part.requests[0].seats
        while fits < len(part.requests) and (seats := seats - part.requests[fits].seats) >= 0:
            fits += 1
        pieces = [part._replace(requests=part.requests[:fits])]
        if fits == len(part.requests):
            del self._parts[at]
        else:
            self._parts[at] = part._replace(requests=part.requests[fits:])
            pieces.append(self._parts[at])
        return pieces

    def split_by_route(self) -> None:
        """Split parts whose requests have different routes by now."""
        split: deque[Part] = deque()
        for part in self._parts:
            by_route: dict[Route, list[Request]] = {}
            for request in part.requests:
                by_route.setdefault(request.route, []).append(request)
            split.extend(part._replace(requests=requests) for requests in by_route.values())
        self._parts = split

    def drop(self, lineage: Lineage) -> list[Request]:
        """Remove the parts of a divided batch; return the requests that still wait."""
        dropped = [part for part in self._parts if part.lineage is lineage]
        self._parts = deque(part for part in self._parts if part.lineage is not lineage)
        return [r for part in dropped for r in part.requests if r.state is State.BATCHED]

    def clear(self) -> None:
        """Forget all of them."""
        self._parts.clear()

    def expire(self, now: float) -> list[Request]:
        """Drop cancelled requests; drop and return, as EXPIRED, those past their deadlines."""
        late = [request for request in self.requests if request.deadline <= now]
        for request in late:
            advance(request, State.EXPIRED)
        staying = (
            part._replace(requests=[r for r in part.requests if r.state is State.BATCHED])
            for part in self._parts
        )
        self._parts = deque(part for part in staying if part.requests)
        return late
