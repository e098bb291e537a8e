"""A shadow policy: plans for the live load, without its plans being carried out.

It sees the same rates, models and bounds as the policy in charge, and as instances those that its
own plans would have given it, available at once and always. The resources that it would use are
totalled alongside those in use.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from carpool.scaling import Instances
from scaler.control.plan_size import capacity_rps
from scaler.planning import cost

if TYPE_CHECKING:
    from carpool.plan import Plan
    from carpool.scaling import Billing, FunctionLoad
    from scaler.control.planning_result import SupportsPlan
    from scaler.planning.snapshot import Snapshot

__all__ = ["ResourceUse", "Shadow"]


@dataclass(slots=True)
class ResourceUse:
    """Resources used by instances.

    Attributes:
        core_s, gpu_percent_s: Core seconds and GPU percent seconds occupied.
        cost: Cost of having the instances by the scenario's rule; executions are not counted.
        short_s: Seconds during which their capacity was below the rate.
    """

    core_s: float = 0.0
    gpu_percent_s: float = 0.0
    cost: float = 0.0
    short_s: float = 0.0

    def add(self, load: FunctionLoad, elapsed_s: float, rule: Billing) -> None:
        """Add the instances of ``load`` over ``elapsed_s``."""
        present = []
        for each in load.plan.classes if load.plan else ():
            instances = load.instances.get(each.name, Instances())
            count = instances.ready + instances.loading
            size = load.model.resources(each.batch_size, each.cpu, each.gpu)
            self.core_s += count * size.cpu * elapsed_s
            self.gpu_percent_s += count * size.gpu * elapsed_s
            self.cost += count * rule.lifetime(size, elapsed_s)
            present.append(replace(each, replicas=count))
        self.short_s += elapsed_s * (capacity_rps(present) < load.rate_rps)


class Shadow:
    """A policy whose plans are not carried out.

    Attributes:
        name: Name of the policy as configured.
        plans: Its plans by function.
        own: Resources that these would have used.
        live: Resources that the existing instances have used meanwhile.
    """

    def __init__(self, name: str, planner: SupportsPlan) -> None:
        self.name = name
        self._planner = planner
        self._seen_s: float | None = None
        self.plans: dict[str, Plan] = {}
        self.own: dict[str, ResourceUse] = {}
        self.live: dict[str, ResourceUse] = {}

    def plan(self, snapshot: Snapshot) -> None:
        """Plan one round, for what the policy in charge sees."""
        elapsed_s = 0.0 if self._seen_s is None else snapshot.now_s - self._seen_s
        self._seen_s = snapshot.now_s
        rule = cost.billing(snapshot.prices)
        for load in snapshot.functions:
            self.live.setdefault(load.name, ResourceUse()).add(load, elapsed_s, rule)
            own = self.own.setdefault(load.name, ResourceUse())
            own.add(self._as_planned(load), elapsed_s, rule)
        loads = tuple(self._as_planned(load) for load in snapshot.functions)
        planning = self._planner.plan(replace(snapshot, functions=loads))
        self.plans.update(planning.plans)

    def _as_planned(self, load: FunctionLoad) -> FunctionLoad:
        plan = self.plans.get(load.name)
        there = {name: Instances(ready=count) for name, count in _planned(plan).items()}
        return replace(load, plan=plan, instances=there)


def _planned(plan: Plan | None) -> dict[str, int]:
    return {each.name: each.replicas for each in plan.classes} if plan else {}
