"""Requests of failed batches that wait to be sent again, before anything in the queue."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from sidecar.core.request import State, advance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.core.batch import SplitBatch
    from sidecar.core.dispatch import Route
    from sidecar.core.request import Request

__all__ = ["Retry", "RetryQueue"]


class Retry(NamedTuple):
    """Requests to be sent again, together.

    Attributes:
        requests: at least one.
        attempt: how often they will have been sent together, from 1.
        split_from: the failed batch that they are a part of, if that was divided.
        deaths: instances that died while they held only this one request. After the first death
            it gets an instance that has nothing else to do.
    """

    requests: list[Request]
    attempt: int
    split_from: SplitBatch | None
    deaths: int = 0


class RetryQueue:
    """Waiting retries, first in, first out."""

    __slots__ = ("_retries",)

    def __init__(self) -> None:
        self._retries: deque[Retry] = deque()

    def __len__(self) -> int:
        return len(self._retries)

    def __iter__(self) -> Iterator[Retry]:
        return iter(self._retries)

    @property
    def requests(self) -> list[Request]:
        """All requests in the retries that still wait."""
        return [r for retry in self._retries for r in retry.requests if r.state is State.BATCHED]

    @property
    def expires_at(self) -> float:
        """Earliest deadline of the waiting requests; ``inf`` if there are none."""
        return min((request.deadline for request in self.requests), default=math.inf)

    def add(self, retry: Retry) -> None:
        """Append ``retry`` and mark its requests as BATCHED."""
        for request in retry.requests:
            advance(request, State.BATCHED)
        self._retries.append(retry)

    def take(self, retry: Retry, items_max: int) -> list[Retry]:
        """Remove the first requests of ``retry`` that fit in ``items_max``, at least one.

        Returns:
            The removed part, and the rest, which continues to wait, if any.
        """
        at, count = self._retries.index(retry), 1
        left = items_max - retry.requests[0].item_count
        while (
            count < len(retry.requests) and (left := left - retry.requests[count].item_count) >= 0
        ):
            count += 1
        taken = [retry._replace(requests=retry.requests[:count])]
        if count == len(retry.requests):
            del self._retries[at]
        else:
            self._retries[at] = retry._replace(requests=retry.requests[count:])
            taken.append(self._retries[at])
        return taken

    def split_by_route(self) -> None:
        """Split retries whose requests now have different routes."""
        split: deque[Retry] = deque()
        for retry in self._retries:
            by_route: dict[Route, list[Request]] = {}
            for request in retry.requests:
                by_route.setdefault(request.route, []).append(request)
            split.extend(retry._replace(requests=requests) for requests in by_route.values())
        self._retries = split

    def drop(self, split_from: SplitBatch) -> list[Request]:
        """Remove the rest of a divided batch; return its requests that still wait."""
        dropped = [retry for retry in self._retries if retry.split_from is split_from]
        self._retries = deque(r for r in self._retries if r.split_from is not split_from)
        return [r for retry in dropped for r in retry.requests if r.state is State.BATCHED]

    def clear(self) -> None:
        """Remove all retries."""
        self._retries.clear()

    def expire(self, now: float) -> list[Request]:
        """Drop cancelled requests; drop and return, as EXPIRED, those past their deadline."""
        late = [request for request in self.requests if request.deadline <= now]
        for request in late:
            advance(request, State.EXPIRED)
        staying = (
            retry._replace(requests=[r for r in retry.requests if r.state is State.BATCHED])
            for retry in self._retries
        )
        self._retries = deque(retry for retry in staying if retry.requests)
        return late
