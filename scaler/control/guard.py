"""The guard: turns the proposals of a scaling policy into plans, live and simulated.

Theory of operation
-------------------
Policies stay simple; the guard protects every one of them from the same errors, in this order:

1. A function with values that are not numbers is not shown to the policy and keeps its plan.
   Missing knowledge is no reason to scale.
2. If the policy raises an error, or its proposal is invalid, that function keeps its plan
   (`proposals`). Every other proposal becomes a plan (`plan_builder`).
3. The number of instances is brought within the function's bounds. Applications all of whose
   instances are removed share the remaining ones that are accurate enough (`plan_size`).
4. The rate of change is limited (`stabilization`).
5. Instances beyond the servers' capacity are removed again, as in 3. Their rate is unplaced, as is
   any rate that the instances cannot serve.
6. The plan says how long idle instances are kept: as the policy wants, or if it names no time, as
   the function's prewarm policy wants. This is updated even if the rest of the plan is kept.
7. A plan that differs from the current one gets the next version, and the term of this scaler.

The same guard stands before every policy in a simulation, at the command line and live.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from carpool.policy_errors import raised
from carpool.sizing import SIZES, Objective
from carpool.variants.variant_set import model_of
from scaler.control import plan_size
from scaler.control.plan_builder import build_plan, numbered, with_windows
from scaler.control.planning_result import PlanningResult
from scaler.control.proposals import proposed
from scaler.control.stabilization import Stabilization, StabilizationLimits
from scaler.planning import cost
from scaler.planning.placement import Boundless

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from carpool.plan import InstanceClass, Plan
    from carpool.scaling import Billing, FunctionLoad, Proposal, ScalePolicy
    from scaler.planning.cost import Prices
    from scaler.planning.placement import Cluster
    from scaler.planning.snapshot import Snapshot

__all__ = ["Guard"]

_OFFSET = 0.1  # relative increase of execution times while their errors are unknown
_ROUNDING = 1e-9


class Guard:
    """Turns the proposals of a policy into plans that are safe to carry out.

    Args:
        policy: Any policy.
        limits: How fast plans may follow it.
        term: Term of the plans that it makes.
    """

    def __init__(
        self, policy: ScalePolicy, limits: StabilizationLimits | None = None, term: int = 0
    ) -> None:
        self._policy = policy
        self._name = type(policy).__name__.lower()
        self._stabilization = Stabilization(limits or StabilizationLimits())
        self._term = term
        self._billing: dict[Prices, Billing] = {}
        self._notes: dict[str, list[str]] = {}
        self._failures: dict[str, str] = {}

    def plan(self, snapshot: Snapshot) -> PlanningResult:
        """Plan one round; raises nothing, whatever the policy does."""
        self._notes = {}
        loads = [self._shown(each, snapshot) for each in snapshot.functions if self._usable(each)]
        proposals, self._failures = proposed(self._policy, loads, snapshot.cluster or Boundless())
        plans: dict[str, Plan] = {}
        unplaced: dict[str, float] = {}
        for load in loads:
            wanted = self._built(load, proposals.get(load.name))
            if load.name not in self._failures:
                unplaced[load.name] = _unserved(load, proposals.get(load.name), wanted)
            if wanted is not None:
                note = partial(self._note, load)
                plans[load.name] = self._stabilization.follow(
                    load, wanted, snapshot.now_s, note, in_steps=not snapshot.beginning
                )
        if snapshot.cluster is not None:
            self._fit(loads, plans, unplaced, snapshot.cluster.copy())
        unplaced = {name: rate for name, rate in unplaced.items() if rate > 0}
        return PlanningResult(
            {plan.function: plan for plan in self._completed(loads, plans)},
            unplaced,
            {name: why for name in unplaced if (why := _reason(proposals.get(name)))},
            self._notes,
            self._failures,
        )

    def _completed(
        self, loads: Sequence[FunctionLoad], plans: Mapping[str, Plan]
    ) -> Iterator[Plan]:
        """Yield new plans, and current ones with new windows, with their windows and versions."""
        for load in loads:
            plan = plans.get(load.name, load.plan)
            if plan is not None:
                timed = with_windows(plan, load.windows)
                if load.name in plans or timed is not plan:
                    yield numbered(timed, load.plan, self._term)

    def _shown(self, load: FunctionLoad, snapshot: Snapshot) -> FunctionLoad:
        """Return the load of a function as the policy sees it."""
        prices = snapshot.prices
        if prices not in self._billing:
            self._billing[prices] = cost.billing(prices)
        rule = self._billing[prices]
        sizes = SIZES.offered(load, Objective.of(load, _OFFSET), prices)
        return replace(load, now_s=snapshot.now_s, prices=prices, billing=rule, sizes=sizes)

    def _usable(self, load: FunctionLoad) -> bool:
        rates = [app.rate_rps for app in load.apps]
        objectives = [load.slo_s, *(app.slo_s for app in load.apps)]
        if not all(0 <= rate < math.inf for rate in rates):
            self._note(load, f"its rates are {rates}")
        elif not all(slo_s > 0 for slo_s in objectives) or not 0 < load.percentile < 1:
            self._note(load, f"its objectives are {objectives} s at {load.percentile}")
        elif not callable(getattr(load.model, "predict", None)):
            self._note(load, "it has no latency model")
        else:
            return True
        return False

    def _built(self, load: FunctionLoad, proposal: Proposal | None) -> Plan | None:
        """Return the proposed plan within the function's bounds; None if it keeps its plan."""
        if proposal is None or not proposal.instances:
            return None
        try:
            return self._bounded(load, build_plan(load, proposal, self._name, self._term))
        except Exception as error:  # noqa: BLE001  what makes no plan is the policy's fault
            self._failures[load.name] = raised(error)
            return None

    def _bounded(self, load: FunctionLoad, plan: Plan) -> Plan:
        total = plan_size.instances(plan)
        if total > load.instance_limit:
            self._note(load, f"{_wanted(total)}, and its maximum is {load.instance_limit}")
            return plan_size.without(plan, total - int(load.instance_limit))
        if total < load.min_instances:
            self._note(load, f"{_wanted(total)}, and its minimum is {load.min_instances}")
            first = plan.classes[0]
            more = replace(first, replicas=first.replicas + load.min_instances - total)
            return replace(plan, classes=(more, *plan.classes[1:]))
        return plan

    def _fit(
        self,
        loads: Sequence[FunctionLoad],
        plans: dict[str, Plan],
        unplaced: dict[str, float],
        cluster: Cluster,
    ) -> None:
        """Remove new instances for which there is no capacity beside those already placed."""
        new = [(each, load) for load in loads for each in _new(load, plans.get(load.name))]
        new.sort(key=lambda entry: (-entry[0].gpu, -entry[0].cpu))
        lacking: dict[str, Counter[str]] = {}
        for each, load in new:
            model = model_of(load.model, each.variant)
            size = model.resources(each.batch_size, each.cpu, each.gpu)
            placed = cluster.place_up_to(size, each.replicas)
            if placed < each.replicas:
                lacking.setdefault(load.name, Counter())[each.name] += each.replicas - placed
        for load in loads:
            if load.name in lacking:
                plan, short = plans[load.name], lacking[load.name]
                counts = ", ".join(f"{count} x {name}" for name, count in short.items())
                self._note(load, f"no capacity for {counts}")
                lack = f"There is no capacity for {short.total()} more."
                plan = replace(plan_size.less(plan, short), explain=(*plan.explain, lack))
                plans[load.name] = plan
                lacking_rps = load.rate_rps - plan_size.capacity_rps(plan.classes)
                unplaced[load.name] = max(unplaced[load.name], lacking_rps)

    def _note(self, load: FunctionLoad, text: str) -> None:
        self._notes.setdefault(load.name, []).append(text)


def _wanted(instances: int) -> str:
    return f"the policy wants {instances} instance{'' if instances == 1 else 's'} of the function"


def _reason(proposal: Proposal | None) -> str:
    """Return why no instance is proposed, unless the policy itself says what it leaves unserved."""
    if proposal is None or proposal.instances or proposal.unserved_rps:
        return ""
    return " ".join(proposal.explain)


def _unserved(load: FunctionLoad, proposal: Proposal | None, wanted: Plan | None) -> float:
    """Return the requests per second that the proposal leaves unserved."""
    plan = wanted or (load.plan if proposal is None else None)
    lacking = load.rate_rps - plan_size.capacity_rps(plan.classes if plan else ())
    reported_rps = proposal.unserved_rps if proposal else 0.0
    unserved = max(lacking if lacking > _ROUNDING * load.rate_rps else 0.0, reported_rps)
    return min(unserved, load.rate_rps)


def _new(load: FunctionLoad, plan: Plan | None) -> list[InstanceClass]:
    """Return the instances of a plan that do not exist yet."""
    if plan is None:
        return []
    there = {name: one.ready + one.loading for name, one in load.instances.items()}
    sizes = {each.name: (each.batch_size, each.cpu, each.gpu) for each in _classes(load)}
    new = []
    for each in plan.classes:
        same = sizes.get(each.name) == (each.batch_size, each.cpu, each.gpu)
        lacking = each.replicas - (there.get(each.name, 0) if same else 0)
        if lacking > 0:
            new.append(replace(each, replicas=lacking))
    return new


def _classes(load: FunctionLoad) -> tuple[InstanceClass, ...]:
    return load.plan.classes if load.plan else ()
