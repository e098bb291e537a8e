"""Cost of keeping instances, whether or not they execute anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from carpool.latency import Resources
    from carpool.scaling import Billing
    from simulator.simulated_instance import SimulatedInstance

__all__ = ["ReservedCost"]


class ReservedCost:
    """Adds up the lifetimes of instances, up to a horizon.

    Attributes:
        core_s, gpu_percent_s: Resources occupied since placement.
        ready_core_s: Core seconds of instances after they had loaded.
        cost: Cost of keeping the instances.
    """

    def __init__(self, billing: Billing, horizon_s: float) -> None:
        self._billing = billing
        self._horizon_s = horizon_s
        self.core_s = self.gpu_percent_s = self.ready_core_s = self.cost = 0.0

    def accrued(self, instances: Iterable[SimulatedInstance], now: float) -> float:
        """Return the cost so far of instances that still exist."""
        price = self._billing.lifetime
        return sum([price(i.execution.size, now - i.started) for i in instances])

    def count(self, instance: SimulatedInstance, now: float) -> None:
        """Add the lifetime of ``instance``, which ends now."""
        end = min(now, self._horizon_s)
        alive_s, ready_s = max(0.0, end - instance.started), max(0.0, end - instance.ready)
        self.add(instance.execution.size, alive_s, ready_s)

    def add(self, size: Resources, alive_s: float, ready_s: float) -> None:
        """Add the total lifetime of instances of one size, and how much of it they were ready."""
        self.core_s += size.cpu * alive_s
        self.gpu_percent_s += size.gpu * alive_s
        self.ready_core_s += size.cpu * ready_s
        self.cost += self._billing.lifetime(size, alive_s)
