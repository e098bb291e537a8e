"""Outcomes of one application's requests: a load's results, converted to those of a run."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from faas_stack.load.results import LoadResults
from simulator.outcomes import Outcomes

__all__ = ["CompareOutcomes"]

_EXPIRED = 504
_REFUSED = (429, 503)


@dataclass(slots=True)
class CompareOutcomes(LoadResults):
    """Counts of one application's requests.

    Attributes:
        app: Its name.
        counts: The same counts in the form of a simulation.
        asleep_s: When the function last had no ready instance, on the clock in seconds.
    """

    app: str = "*"
    counts: Outcomes = field(default_factory=Outcomes)
    asleep_s: float = 0.0

    def answered(self, status: int, latency_s: float, batch: int) -> None:
        """Count a response."""
        LoadResults.answered(self, status, latency_s, batch)
        counts = self.counts
        counts.cold += time.perf_counter() - latency_s <= self.asleep_s
        if status in _REFUSED:
            counts.refused += 1
        elif status == _EXPIRED:
            counts.expired += 1
        elif not 200 <= status < 300:  # noqa: PLR2004
            counts.failed += 1
        else:
            counts.done += 1
            counts.fresh_s.append(latency_s)
            counts.batches += 1 / max(batch, 1)
            counts.sizes[batch] = counts.sizes.get(batch, 0.0) + 1 / max(batch, 1)
            if self.slo_s is None or latency_s <= self.slo_s:
                return
            counts.late += 1
        counts.miss(self.app)

    def failed(self, why: str) -> None:
        """Count a request without a response."""
        LoadResults.failed(self, why)
        self.counts.failed += 1
        self.counts.miss(self.app)
