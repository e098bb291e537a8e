"""What having instances takes, whether they execute anything or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from carpool.latency import Resources
    from scaler.planning.cost import Billing
    from simulator.instance import Instance

__all__ = ["ReservedCost"]


class ReservedCost:
    """Adds up the lives of instances, up to a horizon.

    Attributes:
        core_s, gpu_percent_s: What they occupied, from their placement on.
        ready_core_s: Cores of those that had loaded.
        cost: What having them costs.
    """

    def __init__(self, billing: Billing, horizon_s: float) -> None:
        self._billing = billing
        self._horizon_s = horizon_s
        self.core_s = self.gpu_percent_s = self.ready_core_s = self.cost = 0.0

    def accrued(self, instances: Iterable[Instance], now: float) -> float:
        """What having those cost that are there still."""
        price = self._billing.lifetime
        return sum([price(i.execution.size, now - i.started) for i in instances])

    def count(self, instance: Instance, now: float) -> None:
        """Add the life of ``instance``, which ends now."""
        end = min(now, self._horizon_s)
        alive_s, ready_s = max(0.0, end - instance.started), max(0.0, end - instance.ready)
        self.add(instance.execution.size, alive_s, ready_s)

    def add(self, size: Resources, alive_s: float, ready_s: float) -> None:
        """Add instances of a size that were there for so long together, and ready for so long."""
        self.core_s += size.cpu * alive_s
        self.gpu_percent_s += size.gpu * alive_s
        self.ready_core_s += size.cpu * ready_s
        self.cost += self._billing.lifetime(size, alive_s)
