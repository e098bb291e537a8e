"""Functions to plan for, with small latency tables."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from carpool.latency import Configuration
from carpool.latency.table import Table
from carpool.scaling import Application, FunctionLoad, Instances
from carpool.sizing import Objective, sizes
from scaler.control.guard import Guard
from scaler.control.stabilization import StabilizationLimits
from scaler.planning.cost import Prices
from scaler.planning.placement import Cluster, Node
from scaler.planning.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.latency import LatencyModel
    from carpool.plan import Plan
    from carpool.scaling import ScalePolicy, Size
    from scaler.control.planning_result import PlanningResult

__all__ = [
    "CLASSIFIER",
    "FREE",
    "counts",
    "guarded",
    "instances",
    "load",
    "servers",
    "size",
    "snapshot",
]

CLASSIFIER = Table(
    {
        Configuration(1, 2.0, 0.0): 0.150,
        Configuration(2, 2.0, 0.0): 0.230,
        Configuration(1, 2.0, 10.0): 0.060,
        Configuration(2, 2.0, 10.0): 0.070,
        Configuration(4, 4.0, 20.0): 0.088,
        Configuration(4, 4.0, 50.0): 0.072,
        Configuration(8, 8.0, 50.0): 0.115,
    },
    load_s=2.0,
)

FREE = StabilizationLimits(window_s=0.0, growth_least=10**6, shrink=1.0)


def load(
    rate_rps: float,
    *,
    model: LatencyModel = CLASSIFIER,
    slo_s: float = 0.2,
    name: str = "classify",
    max_batch: int = 32,
    plan: Plan | None = None,
    there: Mapping[str, Instances] | None = None,
    bounds: tuple[int, int | None] = (0, None),
) -> FunctionLoad:
    """Return the load of a function with one application."""
    app = Application("web", slo_s, rate_rps)
    return FunctionLoad(
        name, model, slo_s, 0.99, max_batch, (app,), plan, there or {}, 0, bounds[0], bounds[1]
    )


def size(batch: int, cpu: float, gpu: float, slo_s: float = 0.2, offset: float = 0.0) -> Size:
    """Return one of the classifier's sizes."""
    objective = Objective(slo_s, offset=offset)
    (found,) = [
        s for s in sizes(CLASSIFIER, objective) if (s.batch, s.cpu, s.gpu) == (batch, cpu, gpu)
    ]
    return found


def servers(count: int, cpu: float = 32.0, gpus: int = 2) -> Cluster:
    """Return empty servers of one kind."""
    return Cluster([Node(f"n{number}", cpu, gpus) for number in range(count)])


def snapshot(
    *functions: FunctionLoad, cluster: Cluster | None = None, now_s: float = 0.0
) -> Snapshot:
    """Return a snapshot of these functions without prices."""
    return Snapshot(now_s, functions, cluster, Prices())


def guarded(policy: ScalePolicy) -> Guard:
    """Return the policy behind a guard that lets plans change at once."""
    return Guard(policy, FREE)


def counts(plan: Plan) -> Counter[str]:
    """Return the number of a plan's instances per class, without empty classes."""
    return +Counter({kind.name: kind.replicas for kind in plan.classes})


def instances(planning: PlanningResult) -> int:
    """Return the number of instances of all plans."""
    return sum(counts(plan).total() for plan in planning.plans.values())
