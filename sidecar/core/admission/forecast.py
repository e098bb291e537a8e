"""Forecasts when a request that arrives now is answered, if the load stays as it is.

Theory of operation
-------------------
A forecast is of one route. It lists the next batches of the route's instances in order of their
start, each with its number of items and its execution time: a fast instance takes several while a
slow one executes one. The position of a request in the queue tells which batch it will be in. For
requests behind the last batch, the list is repeated.

Other routes may send requests to the same instances. Of their waiting requests, the share counts
that these instances will execute.

A forecast is valid until the instances or their batches change; the queue is passed in each time.
So an arrival costs next to nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import accumulate
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sidecar.core.dispatch import Route, Upstream, Upstreams
    from sidecar.core.in_flight import InFlight

__all__ = ["Forecast"]

_BATCHES_MAX = 32  # listed
_LEAST_S = 1e-9  # an execution takes at least this long


@dataclass(slots=True)
class Forecast:
    """The next batches of the instances of a route.

    Attributes:
        starts: when each batch is expected to start, in order.
        items_until: number of items in the batches up to and including each.
        paces: execution times of each batch.
        rate: items a second that the instances execute.
        class_rates: items a second by class of instances, for the whole function.
        shares: by route, the share of its requests that these instances execute; filled on demand.
        route: the route that this is about.
    """

    starts: Sequence[float]
    items_until: Sequence[int]
    paces: Sequence[_Pace]
    rate: float
    class_rates: Mapping[str, float]
    shares: dict[Route, float]
    route: Route

    @classmethod
    def of(cls, route: Route, upstreams: Upstreams, in_flight: InFlight, now: float) -> Self | None:
        """Return the forecast for requests of ``route``.

        None while too little is known, and while an instance is idle: a batch there delays no
        other, and shows how long batches take.
        """
        if upstreams.next_free(route, now):
            return None
        available = [upstream for upstream in upstreams if upstream.available(now)]
        instances = [upstream for upstream in available if route.admits(upstream)]
        if not (instances and all(each.exec_time.has_settled for each in instances)):
            return None
        # By the time it leaves, later arrivals will have filled its batch as they do at this load.
        item_counts = [batch.item_count for batch in in_flight if route.admits(batch.upstream)]
        usual = max(item_counts, default=1)
        paces = _paces(available, usual)
        next_free = [(in_flight.free_at(each, now), paces[each]) for each in instances]
        starts, in_order = zip(*_next_batches(next_free), strict=True)
        return cls(
            starts,
            list(accumulate([pace.items for pace in in_order])),
            in_order,
            sum([paces[each].rate for each in instances]),
            _class_rates(paces) if route.weights is not None else {},
            {route: 1.0},
            route,
        )

    def finish_at(self, items_ahead: float, now: float) -> float:
        """Return when a request behind ``items_ahead`` waiting items is answered."""
        listed, repeated_s = self.items_until[-1], 0.0
        if items_ahead >= listed:
            rounds, items_ahead = divmod(items_ahead, listed)
            repeated_s = rounds * listed / self.rate
        place = bisect_right(self.items_until, items_ahead)
        start, pace = self.starts[place], self.paces[place]
        finish = (start if start > now else now) + repeated_s + pace.batch_s  # noqa: FURB136 - every request comes here
        if place:
            items_ahead -= self.items_until[place - 1]
        more = items_ahead + 1 - pace.usual_items
        return finish + more * pace.item_s if more > 0 else finish

    def backlog_s(self, items: float) -> float:
        """Return the seconds that the instances need to execute ``items``."""
        return items / self.rate

    def share(self, route: Route) -> float:
        """Return the share of the requests of ``route`` that these instances will execute."""
        share = self.shares.get(route)
        if share is None:
            share = self.shares[route] = self._share_of(route)
        return share

    def _share_of(self, route: Route) -> float:
        own, rates = self.route.weights or {}, self.class_rates
        classes = rates if route.weights is None else route.weights
        shared = sum([rates.get(name, 0.0) for name in classes if name in own])
        return shared / sum([rates.get(name, 0.0) for name in classes]) if shared else 0.0


@dataclass(slots=True)
class _Pace:
    """How fast an instance executes its batches.

    Attributes:
        items: most items that it executes at a time.
        round_s: execution time of these; infinite while it is unknown.
        usual_items: items in a batch at the present load.
        batch_s: execution time of a batch of that size.
        item_s: additional time for one more item.
    """

    items: int
    round_s: float
    usual_items: int
    batch_s: float
    item_s: float

    @property
    def rate(self) -> float:
        """Items a second."""
        return self.items / self.round_s


def _pace(upstream: Upstream, usual_items: int) -> _Pace:
    """Return the pace of an instance; one with a concurrency above 1 gets single requests."""
    mean, single = upstream.exec_time.mean, upstream.concurrency > 1
    items = upstream.concurrency if single else upstream.batch_max
    usual_items = min(usual_items, items)
    batch_s = mean(usual_items)
    known = upstream.exec_time.known
    round_s = max(mean(1 if single else items), _LEAST_S) if known else math.inf
    return _Pace(items, round_s, usual_items, batch_s, mean(usual_items + 1) - batch_s)


def _paces(upstreams: Iterable[Upstream], usual_items: int) -> dict[Upstream, _Pace]:
    """Return the pace of each instance; instances of a class usually share one."""
    of_class: dict[object, _Pace] = {}
    paces = {}
    for each in upstreams:
        key = (each.exec_time, each.batch_max, each.concurrency)
        pace = of_class.get(key)
        if pace is None:
            pace = of_class[key] = _pace(each, usual_items)
        paces[each] = pace
    return paces


def _class_rates(paces: Mapping[Upstream, _Pace]) -> dict[str, float]:
    rates: defaultdict[str, float] = defaultdict(float)
    for upstream, pace in paces.items():
        rates[upstream.instance_class] += pace.rate
    return dict(rates)


def _next_batches(
    next_free: Sequence[tuple[float, _Pace]],
) -> Iterator[tuple[float, _Pace]]:
    """Yield start and pace of the next batches, until the slowest instance has had its turn.

    Args:
        next_free: for each instance, when it is expected to take its next batch, and its pace.
    """
    slowest_s = max([pace.round_s for _, pace in next_free])
    count = sum([round(slowest_s / pace.round_s) for _, pace in next_free])
    heap = [(free_at, number, pace) for number, (free_at, pace) in enumerate(next_free)]
    heapify(heap)
    for _ in range(min(count, _BATCHES_MAX)):
        start, number, pace = heap[0]
        yield start, pace
        heapreplace(heap, (start + pace.round_s, number, pace))
