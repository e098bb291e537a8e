"""Places instances on the servers of a cluster, or without limit if there is no cluster.

Two records are kept, as in Carpool's provider. *Reserved* is what was requested and accepted; a
request that does not fit beside the other reservations is refused. *Placed* is what instances hold
until they are gone. An instance whose place is still held by one that is draining waits in a queue
and tries again when capacity is released.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from scaler.control.action import ProviderError

if TYPE_CHECKING:
    from collections.abc import Callable

    from carpool.latency import Resources
    from scaler.planning.placement import Cluster, Placement

__all__ = ["ClusterCapacity", "Place", "ReservedPlaces"]

# None without a cluster.
Place: TypeAlias = "Placement | None"


@dataclass(slots=True)
class ReservedPlaces:
    """The instances reserved to one class: their size, number and intended places."""

    size: Resources | None = None
    places: list[Placement] = field(default_factory=list)


class ClusterCapacity:
    """The cluster shared by the instances of all functions; without a cluster it is unlimited.

    Attributes:
        cluster: Instances placed on the servers.
        reserved: Instances that were reserved.
        loading: Number of loading instances per server; one entry without a cluster.
    """

    def __init__(self, cluster: Cluster | None) -> None:
        self.cluster = cluster
        self.reserved = cluster.copy() if cluster is not None else None
        self.loading: Counter[int] = Counter()
        self._line: list[Callable[[float], None]] = []

    def reserve(self, reservation: ReservedPlaces, size: Resources, count: int) -> None:
        """Reserve ``count`` instances of this size, replacing the class's previous reservation.

        Raises:
            ProviderError: the other reservations do not leave enough capacity; nothing changes.
        """
        book = self.reserved
        if book is None:
            return
        before, kept = reservation.size, reservation.places
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
            if kept is not reservation.places:
                assert before is not None  # noqa: S101  or nothing would have been released
                reservation.places = [book.place(before, p.node, p.gpu) for p in reservation.places]
            fit = f"{len(kept) + len(new) or 'none'} would fit"
            message = f"no capacity for {count} instances with {size.cpu:g} cores each: {fit}"
            raise ProviderError(message, refused=True)
        for place in kept[count:]:
            book.release(place)
        reservation.size, reservation.places = size, [*kept[:count], *new]

    def take(self, size: Resources) -> tuple[bool, Place]:
        """Place an instance by best fit; return whether it fits, and the place."""
        if self.cluster is None:
            return True, None
        node = self.cluster.best_fit(size)
        return (False, None) if node is None else (True, self.cluster.place(size, node))

    def fits(self, size: Resources) -> bool:
        """Return whether one more instance fits."""
        return self.cluster is None or self.cluster.best_fit(size) is not None

    def give_back(self, place: Place) -> None:
        """Release the place of an instance."""
        if self.cluster is not None and place is not None:
            self.cluster.release(place)

    def loads(self, place: Place, change: int) -> None:
        """Add ``change``, 1 or -1, to the number of instances loading on a server."""
        self.loading[_server(place)] += change

    def loading_beside(self, place: Place) -> int:
        """Return the number of instances loading on the same server."""
        return self.loading[_server(place)]

    def wait(self, fill: Callable[[float], None]) -> None:
        """Call ``fill(now)`` once when capacity may be available."""
        if fill not in self._line:
            self._line.append(fill)

    def released(self, now: float) -> None:
        """Let waiting instances try again, in order of arrival."""
        line, self._line = self._line, []
        for fill in line:
            fill(now)

    def fragmentation(self) -> float:
        """Return the unallocated share of the servers in use; 0 if none is in use."""
        return self.cluster.fragmentation() if self.cluster else 0.0


def _server(place: Place) -> int:
    return 0 if place is None else place.node
