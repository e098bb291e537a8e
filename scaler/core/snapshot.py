"""What a scaling policy sees: loads, instances and free capacity at one moment.

A snapshot is all that a policy may know, so that it plans the same in a simulation and live.
Amounts are measured or forecast by whoever makes the snapshot; nothing here says how.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.latency import LatencyModel
    from carpool.plan import Plan
    from scaler.core.arrivals.processes import ArrivalProcess
    from scaler.core.cost import Prices
    from scaler.core.placement import Cluster

__all__ = ["AppLoad", "FunctionView", "Instances", "Snapshot"]


@dataclass(frozen=True, slots=True)
class AppLoad:
    """An application's requests to a function.

    Attributes:
        name: As in ``X-Carpool-App``.
        slo_s: Its latency objective.
        rate_rps: Requests per second to plan for.
        process: What is known of the way they arrive; None: nothing but the rate.
        accuracy: The least accuracy of its answers, where a model has variants.
        cost: The most that a request of it may cost.
        variant: The only variant that it may be served by; empty: any.
        chooses: Its requests choose their variant themselves, whatever a plan's routes say.
    """

    name: str
    slo_s: float
    rate_rps: float
    process: ArrivalProcess | None = None
    accuracy: float = 0.0
    cost: float = math.inf
    variant: str = ""
    chooses: bool = False


@dataclass(frozen=True, slots=True)
class Instances:
    """Instances of one class: how many answer, and how many are still loading."""

    ready: int = 0
    loading: int = 0


@dataclass(frozen=True, slots=True)
class FunctionView:
    """One function.

    Attributes:
        name: As the user calls it.
        model: How long its batches take.
        slo_s: Latency objective of a request.
        percentile: Share of requests that must meet it.
        max_batch: Most requests in one batch.
        apps: Who calls it, and how much.
        plan: The plan in force; None before the first.
        instances: By class of the plan in force.
        queued: Requests waiting.
        load_s: How long its instances were seen to load; 0: nobody has seen one.
        min_instances, max_instances: Bounds on instances, of all classes together.
        error: By what part batches are known to exceed the model; None: nobody has measured it.
    """

    name: str
    model: LatencyModel
    slo_s: float
    percentile: float
    max_batch: int
    apps: tuple[AppLoad, ...]
    plan: Plan | None = None
    instances: Mapping[str, Instances] = field(default_factory=dict)
    queued: int = 0
    min_instances: int = 0
    max_instances: int | None = None
    load_s: float = 0.0
    error: float | None = None

    @property
    def rate_rps(self) -> float:
        """Requests per second of all applications."""
        return sum(app.rate_rps for app in self.apps)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything at one moment.

    Attributes:
        now_s: Seconds, on any axis.
        functions: What is to be planned for.
        cluster: The servers with everything placed on them; None: there is always room. Policies
            plan on a `Cluster.copy`.
        prices: What resources cost.
    """

    now_s: float
    functions: tuple[FunctionView, ...]
    cluster: Cluster | None
    prices: Prices
