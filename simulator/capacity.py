"""Where instances are: on the servers of a cluster, or wherever there is room without end.

There are two books over the servers, as in Carpool's provider. What was asked for is *promised*; a
promise for which there is no room beside the others is refused. *Places* are what instances hold,
until they are gone. An instance whose place another still holds, which is on its way out, waits in
line, and tries again when something is released.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from scaler.control.provider_error import ProviderError

if TYPE_CHECKING:
    from collections.abc import Callable

    from carpool.latency import Resources
    from scaler.planning.placement import Cluster, Placement

__all__ = ["Capacity", "Place", "Promise"]

# Without a cluster a place is nothing that could be given back.
Place: TypeAlias = "Placement | None"


@dataclass(slots=True)
class Promise:
    """What one class was promised: instances of a size, and where they would be."""

    size: Resources | None = None
    places: list[Placement] = field(default_factory=list)


class Capacity:
    """A cluster that instances of all functions share; None: capacity is unlimited.

    Attributes:
        cluster: Instances that there are, on the servers.
        promised: Instances that were promised.
        loading: How many instances load on each server; without a cluster there is one.
    """

    def __init__(self, cluster: Cluster | None) -> None:
        self.cluster = cluster
        self.promised = cluster.copy() if cluster is not None else None
        self.loading: Counter[int] = Counter()
        self._line: list[Callable[[float], None]] = []

    def promise(self, promise: Promise, size: Resources, count: int) -> None:
        """Promise so many of this size in place of what was promised before.

        Raises:
            ProviderError: what others were promised does not leave that much; all stays as it was.
        """
        book = self.promised
        if book is None:
            return
        before, kept = promise.size, promise.places
        if before is not None and before != size:
            for place in kept:
                book.release(place)
            kept = []
        new: list[Placement] = []
        while len(kept) + len(new) < count and (node := book.best_fit(size)) is not None:
            new.append(book.place(size, node))
        if len(kept) + len(new) < count:
            for place in new:
                book.release(place)
            if kept is not promise.places:
                assert before is not None  # noqa: S101  or nothing would have been released
                promise.places = [book.place(before, p.node, p.gpu) for p in promise.places]
            fit = f"{len(kept) + len(new) or 'none'} would fit"
            message = f"no room for {count} instances with {size.cpu:g} cores each: {fit}"
            raise ProviderError(message, answered=True)
        for place in kept[count:]:
            book.release(place)
        promise.size, promise.places = size, [*kept[:count], *new]

    def take(self, size: Resources) -> tuple[bool, Place]:
        """Whether there is a place for an instance, and which, by best fit."""
        if self.cluster is None:
            return True, None
        node = self.cluster.best_fit(size)
        return (False, None) if node is None else (True, self.cluster.place(size, node))

    def has_room(self, size: Resources) -> bool:
        """Whether there is a place for one more."""
        return self.cluster is None or self.cluster.best_fit(size) is not None

    def give_back(self, place: Place) -> None:
        """An instance is gone."""
        if self.cluster is not None and place is not None:
            self.cluster.release(place)

    def loads(self, place: Place, change: int) -> None:
        """One more instance loads there, or one less."""
        self.loading[_server(place)] += change

    def loading_beside(self, place: Place) -> int:
        """How many instances load on that server."""
        return self.loading[_server(place)]

    def wait(self, fill: Callable[[float], None]) -> None:
        """Have ``fill(now)`` called once, when there may be a place."""
        if fill not in self._line:
            self._line.append(fill)

    def released(self, now: float) -> None:
        """Let those in line try again, first come, first served."""
        line, self._line = self._line, []
        for fill in line:
            fill(now)

    def fragmentation(self) -> float:
        """The unallocated share of the servers in use; 0 where there are none."""
        return self.cluster.fragmentation() if self.cluster else 0.0


def _server(place: Place) -> int:
    return 0 if place is None else place.node
