"""Outcomes of requests, as amounts that can be added."""

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
    """Finished requests, and the work and cost of serving them.

    Attributes:
        done, expired, refused, failed: Number of requests by outcome.
        late: Number of done requests that exceeded their objective.
        cold: Number of requests that waited for an instance to load.
        batches: Number of executed batches.
        cost: Cost of executing them.
        busy_core_s: Core seconds of executing them.
        sizes: Number of batches by size.
        missed_by_app: Number of requests that missed their objective, by application.
        latencies: Latencies of done requests.
        fresh_s: Latencies not yet added to ``latencies``.
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
        """Return the number of finished requests, whatever their outcome."""
        return self.done + self.expired + self.refused + self.failed

    @property
    def missed(self) -> float:
        """Return the number of requests that missed their objective: late, or not done."""
        return self.late + self.expired + self.refused + self.failed

    def miss(self, app: str) -> None:
        """Count an SLO violation of an application; the reason is counted elsewhere."""
        self.missed_by_app[app] = self.missed_by_app.get(app, 0.0) + 1

    def settle(self) -> Self:
        """Add the fresh latencies to the histogram."""
        self.latencies.add(self.fresh_s)
        self.fresh_s = []
        return self

    def add(self, other: Outcomes, scale: float = 1.0) -> None:
        """Add another, settled `Outcomes`, weighted by ``scale``."""
        for name in _AMOUNTS:
            setattr(self, name, getattr(self, name) + scale * getattr(other, name))
        for size, count in other.sizes.items():
            self.sizes[size] = self.sizes.get(size, 0.0) + scale * count
        for app, count in other.missed_by_app.items():
            self.missed_by_app[app] = self.missed_by_app.get(app, 0.0) + scale * count
        self.latencies.merge(other.latencies, scale)
