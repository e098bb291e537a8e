"""Outcomes of one application's requests: the load engine's tally, converted to run results."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from faas_stack.load.results import Tally
from simulator.outcomes import Outcomes

__all__ = ["CompareOutcomes"]

_EXPIRED = 504
_REFUSED = (429, 503)


@dataclass(slots=True)
class CompareOutcomes(Tally):
    """Counts of one application's requests.

    Attributes:
        app: Its name.
        served: The same counts in the form of a simulation.
        asleep_s: When the function last had no ready instance, on the clock in seconds.
    """

    app: str = "*"
    served: Outcomes = field(default_factory=Outcomes)
    asleep_s: float = 0.0

    def answered(self, status: int, latency_s: float, batch: int) -> None:
        """Count a response."""
        Tally.answered(self, status, latency_s, batch)
        served = self.served
        served.cold += time.perf_counter() - latency_s <= self.asleep_s
        if status in _REFUSED:
            served.refused += 1
        elif status == _EXPIRED:
            served.expired += 1
        elif not 200 <= status < 300:  # noqa: PLR2004
            served.failed += 1
        else:
            served.done += 1
            served.fresh_s.append(latency_s)
            served.batches += 1 / max(batch, 1)
            served.sizes[batch] = served.sizes.get(batch, 0.0) + 1 / max(batch, 1)
            if self.slo_s is None or latency_s <= self.slo_s:
                return
            served.late += 1
        served.miss(self.app)

    def failed(self, why: str) -> None:
        """Count a request without a response."""
        Tally.failed(self, why)
        self.served.failed += 1
        self.served.miss(self.app)
