"""Outcomes of requests, as amounts that can be added up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from simulator.latency_histogram import Latencies

__all__ = ["Outcomes"]

_AMOUNTS = (
    "done",
    "expired",
    "refused",
    "failed",
    "late",
    "cold",
    "batches",
    "cost",
    "busy_core_s",
)


@dataclass(slots=True)
class Outcomes:
    """Requests that came to their end, and what serving them took.

    Attributes:
        done, expired, refused, failed: How many ended how.
        late: How many of those done took longer than their objective.
        cold: How many waited for an instance to load.
        batches: How many batches were executed.
        cost: What executing them cost.
        busy_core_s: Cores that executed them, for how long.
        sizes: How many batches there were of each size.
        missed_by_app: How many requests of each application missed their objective.
        latencies: Of those done.
        fresh_s: Latencies that are not in ``latencies`` yet.
    """

    done: float = 0
    expired: float = 0
    refused: float = 0
    failed: float = 0
    late: float = 0
    cold: float = 0
    batches: float = 0
    cost: float = 0.0
    busy_core_s: float = 0.0
    sizes: dict[int, float] = field(default_factory=dict)
    missed_by_app: dict[str, float] = field(default_factory=dict)
    latencies: Latencies = field(default_factory=Latencies)
    fresh_s: list[float] = field(default_factory=list)

    @property
    def ended(self) -> float:
        """All of them, however they ended."""
        return self.done + self.expired + self.refused + self.failed

    @property
    def missed(self) -> float:
        """Those that missed their objective: late, or not done at all."""
        return self.late + self.expired + self.refused + self.failed

    def miss(self, app: str) -> None:
        """A request of this application missed its objective; why is counted elsewhere."""
        self.missed_by_app[app] = self.missed_by_app.get(app, 0.0) + 1

    def settle(self) -> Self:
        """Sort the fresh latencies in."""
        self.latencies.add(self.fresh_s)
        self.fresh_s = []
        return self

    def add(self, other: Outcomes, scale: float = 1.0) -> None:
        """Add ``scale`` times another, which is settled."""
        for name in _AMOUNTS:
            setattr(self, name, getattr(self, name) + scale * getattr(other, name))
        for size, count in other.sizes.items():
            self.sizes[size] = self.sizes.get(size, 0.0) + scale * count
        for app, count in other.missed_by_app.items():
            self.missed_by_app[app] = self.missed_by_app.get(app, 0.0) + scale * count
        self.latencies.merge(other.latencies, scale)
