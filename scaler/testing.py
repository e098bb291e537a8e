"""For authors of scaling policies: rounds of planning, with the plans carried out in between.

`Rounds` stands for everything except the policy: it takes the policy's plans, starts and stops the
instances immediately, and shows the policy the result. No time passes and no requests arrive; for
that there is ``carpool simulate``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from carpool.scaling import Instances
from carpool.variants.variant_set import model_of
from scaler.planning.cost import Prices
from scaler.planning.placement import Cluster
from scaler.planning.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.plan import InstanceClass, Plan
    from carpool.scaling import FunctionLoad
    from scaler.control.planning_result import PlanningResult, SupportsPlan
    from scaler.planning.placement import Node, Placement

__all__ = ["Rounds"]


class Rounds:
    """Drives a planner round after round.

    Args:
        planner: A guard, with the policy behind it.
        functions: Functions to plan for; their plans and instances are filled in.
        nodes: The servers; if empty, capacity is unlimited.
        prices: Prices of resources.

    Attributes:
        cluster: The servers with what is placed on them; None if there are none.
        unplaced: Instances of the last round's plans that did not fit, by function.
    """

    def __init__(
        self,
        planner: SupportsPlan,
        functions: Sequence[FunctionLoad],
        nodes: Sequence[Node] = (),
        prices: Prices | None = None,
    ) -> None:
        self._planner = planner
        self._loads = {load.name: load for load in functions}
        self._prices = prices or Prices()
        self._placed: dict[str, dict[str, list[Placement | None]]] = {}
        self.cluster = Cluster(nodes) if nodes else None
        self.unplaced: dict[str, int] = {}

    @property
    def functions(self) -> tuple[FunctionLoad, ...]:
        """The functions as the policy will see them."""
        return tuple(self._loads.values())

    def snapshot(self, now_s: float, rates_rps: Mapping[str, float]) -> Snapshot:
        """Return the policy's input for these rates, divided equally among each function's apps."""
        for name, rate_rps in rates_rps.items():
            load = self._loads[name]
            apps = tuple(replace(app, rate_rps=rate_rps / len(load.apps)) for app in load.apps)
            self._loads[name] = replace(load, apps=apps)
        return Snapshot(now_s, self.functions, self.cluster, self._prices)

    def plan(self, now_s: float, rates_rps: Mapping[str, float]) -> PlanningResult:
        """Run one round: plan, and carry out the plans."""
        planning = self._planner.plan(self.snapshot(now_s, rates_rps))
        self.carry_out(planning.plans)
        return planning

    def carry_out(self, plans: Mapping[str, Plan]) -> None:
        """Stop instances that these plans no longer want, then start those that they want."""
        self.unplaced = {}
        for name, plan in plans.items():
            self._stop(name, plan)
        for name, plan in plans.items():
            self._start(name, plan)
            there = {each: Instances(ready=len(at)) for each, at in self._placed[name].items()}
            self._loads[name] = replace(self._loads[name], plan=plan, instances=there)

    def _stop(self, name: str, plan: Plan) -> None:
        before = self._loads[name].plan
        sizes = {each.name: _size(each) for each in before.classes} if before else {}
        wanted = {
            each.name: each.replicas for each in plan.classes if sizes.get(each.name) == _size(each)
        }
        placed = self._placed.setdefault(name, {})
        for class_name in list(placed):
            surplus = placed[class_name][wanted.get(class_name, 0) :]
            placed[class_name] = placed[class_name][: wanted.get(class_name, 0)]
            for placement in surplus:
                if self.cluster is not None and placement is not None:
                    self.cluster.release(placement)

    def _start(self, name: str, plan: Plan) -> None:
        placed = self._placed[name]
        for each in plan.classes:
            there = placed.setdefault(each.name, [])
            model = model_of(self._loads[name].model, each.variant)
            size = model.resources(each.batch_size, each.cpu, each.gpu)
            for missing in range(each.replicas - len(there), 0, -1):
                placement = None
                if self.cluster is not None:
                    node = self.cluster.best_fit(size)
                    if node is None:
                        self.unplaced[name] = self.unplaced.get(name, 0) + missing
                        break
                    placement = self.cluster.place(size, node)
                there.append(placement)


def _size(each: InstanceClass) -> tuple[str, int, float, float]:
    return each.variant, each.batch_size, each.cpu, each.gpu
