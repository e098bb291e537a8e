"""The sidecar's choice of an instance, made efficient for hundreds of instances.

`Upstreams` looks at every instance for every batch, which is fine for the few behind a sidecar.
Here they are kept in heaps by items sent, one per group of equal instances, so the same choice
takes time logarithmic in their number. It must be notified of every batch that leaves or returns
and, by `keep`, of instances that have changed; it supports only instances that are always reachable
and never fail.
"""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING, TypeAlias

from sidecar.core.dispatch import Upstreams

if TYPE_CHECKING:
    from collections.abc import Collection

    from sidecar.core.dispatch import Route, Upstream
    from sidecar.core.exec_time import ExecTime

__all__ = ["ManyUpstreams"]

UpstreamKey: TypeAlias = "tuple[str, int, ExecTime, bool, bool]"


class _EqualInstances:
    """Instances of one class, condition and largest batch that share an `ExecTime`.

    Outdated entries are dropped when they reach the top of the heap.
    """

    __slots__ = ("_free", "_listed", "_members", "_one", "batch_max", "interfered", "name")

    def __init__(self, upstream: Upstream) -> None:
        self.name = upstream.instance_class
        self.batch_max = upstream.batch_max
        self.interfered = upstream.interfered
        self._members: dict[int, Upstream] = {}  # by rank, the order of joining
        self._free: list[tuple[float, int]] = []  # by items sent
        self._one: list[int] = []  # with one batch
        self._listed: set[int] = set()

    def note(self, upstream: Upstream, rank: int) -> None:
        """Add ``upstream``, or record that its number of batches has changed."""
        self._members[rank] = upstream
        if upstream.free:
            heapq.heappush(self._free, (upstream.items_sent, rank))
        elif upstream.in_flight == 1 and rank not in self._listed:
            self._listed.add(rank)
            heapq.heappush(self._one, rank)

    def first_free(self) -> tuple[int, Upstream] | None:
        """Return the free instance with the fewest items sent, the first if tied, and its rank."""
        free, members = self._free, self._members
        while free:
            items_sent, rank = free[0]
            upstream = members[rank]
            if upstream.free and upstream.items_sent == items_sent:
                return rank, upstream
            heapq.heappop(free)
        return None

    def first_with_one(self) -> tuple[int, Upstream] | None:
        """Return the first instance that has exactly one batch, and its rank."""
        while self._one:
            rank = self._one[0]
            if self._members[rank].in_flight == 1:
                return rank, self._members[rank]
            self._listed.discard(heapq.heappop(self._one))
        return None


class ManyUpstreams(Upstreams):
    """`Upstreams` that stays fast with many instances."""

    __slots__ = ("_equals", "_next_rank", "_of", "_ranks")

    def __init__(self) -> None:
        super().__init__()
        self._equals: dict[UpstreamKey, _EqualInstances] = {}
        self._of: dict[str, _EqualInstances] = {}
        self._ranks: dict[str, int] = {}
        self._next_rank = 0

    def add(self, upstream: Upstream) -> None:
        """As `Upstreams.add`."""
        super().add(upstream)
        if upstream.name not in self._ranks:
            self._ranks[upstream.name] = self._next_rank
            self._next_rank += 1
        self._enter(upstream)

    def keep(self, upstreams: Collection[Upstream]) -> None:
        """As `Upstreams.keep`; the kept ones may have changed in any way."""
        super().keep(set(upstreams))
        self._equals, self._of = {}, {}
        self._ranks = {name: self._ranks[name] for name in self._by_name}
        for upstream in self:
            self._enter(upstream)

    def moved(self, upstream: Upstream) -> None:
        """Record that a batch was sent to ``upstream`` or has returned."""
        equals = self._of.get(upstream.name)
        if equals is not None:
            equals.note(upstream, self._ranks[upstream.name])

    def next_free(self, route: Route, now: float) -> Upstream | None:
        """As `Upstreams.next_free`."""
        del now
        best: tuple[tuple[float, ...], int] | None = None
        chosen: Upstream | None = None
        for equals in self._equals.values():
            first = equals.first_free() if _admits(route, equals) else None
            if first is not None:
                rank, upstream = first
                merit = (route.precedence(upstream), rank)
                if best is None or merit < best:
                    best, chosen = merit, upstream
        return chosen

    def has_capacity(self, now: float) -> bool:
        """As `Upstreams.has_capacity`."""
        del now
        for equals in self._equals.values():
            if equals.interfered:
                continue
            if equals.first_free():
                return True
            first = equals.first_with_one()
            if first and first[1].pipelined:
                return True
        return False

    def next_to_pipeline(self, route: Route, queued_items: int, now: float) -> Upstream | None:
        """As `Upstreams.next_to_pipeline`."""
        del now
        best: tuple[int, Upstream] | None = None
        for equals in self._equals.values():
            if queued_items >= equals.batch_max and _admits(route, equals):
                first = equals.first_with_one()
                if first and (best is None or first[0] < best[0]) and first[1].pipelined:
                    best = first
        return best[1] if best else None

    def next_ejection_ends(self, now: float) -> float:
        """Return infinity, as simulated upstreams are never ejected."""
        del now
        return math.inf

    def _enter(self, upstream: Upstream) -> None:
        """Add ``upstream`` to its group of equals."""
        flags = (upstream.overloaded, upstream.interfered)
        key = (upstream.instance_class, upstream.batch_max, upstream.exec_time, *flags)
        equals = self._equals.get(key)
        if equals is None:
            equals = self._equals[key] = _EqualInstances(upstream)
        self._of[upstream.name] = equals
        equals.note(upstream, self._ranks[upstream.name])


def _admits(route: Route, equals: _EqualInstances) -> bool:
    if equals.interfered:
        return False
    return route.weights is None or route.weights.get(equals.name, 0.0) > 0
