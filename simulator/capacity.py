"""Where instances are: on the servers of a cluster, or wherever there is room without end.

An instance that finds no capacity waits in line, and tries again when something is released.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from carpool.latency import Resources
    from scaler.planning.placement import Cluster, Placement

__all__ = ["Capacity", "Place"]

# Without a cluster a place is nothing that could be given back.
Place: TypeAlias = "Placement | None"


class Capacity:
    """A cluster that instances of all functions share; None: there is always room."""

    def __init__(self, cluster: Cluster | None) -> None:
        self.cluster = cluster
        self._line: list[Callable[[float], None]] = []

    def take(self, size: Resources) -> tuple[bool, Place]:
        """Whether there is room for an instance, and its place, by best fit."""
        if self.cluster is None:
            return True, None
        node = self.cluster.best_fit(size)
        return (False, None) if node is None else (True, self.cluster.place(size, node))

    def give_back(self, place: Place) -> None:
        """An instance is gone."""
        if self.cluster is not None and place is not None:
            self.cluster.release(place)

    def wait(self, fill: Callable[[float], None]) -> None:
        """Have ``fill(now)`` called once, when there may be room."""
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
