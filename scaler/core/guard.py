"""Stands between a scaling policy and what its plans are carried out on.

Theory of operation
-------------------
Policies stay naive; what every one of them should be kept from is kept from them here, in order:

1. A function whose numbers are no numbers is not shown to the policy and keeps its plan, and so do
   all if the policy raises. What is not known is no reason to scale.
2. A plan for a function that is not there, or of another shape than it has to be, is dropped.
3. Its instances are brought within the function's bounds.
4. It is followed no faster than is good (`restraint`).
5. What has no room on the servers is taken off again, and its rate is unplaced.

A guard is itself a policy, so it can stand wherever one can.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from carpool.plan import InstanceClass, Plan
from scaler.core import plan_size
from scaler.core.placement import place_up_to
from scaler.core.policy import Planning
from scaler.core.raised import raised
from scaler.core.restraint import Limits, Restraint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler.core.placement import Cluster
    from scaler.core.policy import ScalePolicy
    from scaler.core.snapshot import FunctionView, Snapshot

__all__ = ["Guard"]


class Guard:
    """A policy whose plans are safe to carry out.

    Attributes:
        notes: Why functions kept their plan, or got another than the policy wanted, in the last
            round, by name.
        failures: What the policy did wrong in the last round, by the name of who has no plan of it.
    """

    def __init__(self, policy: ScalePolicy, limits: Limits | None = None) -> None:
        self._policy = policy
        self._restraint = Restraint(limits or Limits())
        self.notes: dict[str, list[str]] = {}
        self.failures: dict[str, str] = {}

    def plan(self, snapshot: Snapshot) -> Planning:
        """As `ScalePolicy.plan`; raises nothing."""
        self.notes, self.failures = {}, {}
        usable = tuple(view for view in snapshot.functions if self._is_usable(view))
        try:
            wanted, unplaced = self._asked(replace(snapshot, functions=usable))
        except (Exception, SystemExit) as error:  # noqa: BLE001  a policy may be anybody's
            self.failures = {view.name: raised(error) for view in usable}
            return Planning({})
        plans = {}
        for view in usable:
            plan = self._checked(view, wanted.get(view.name))
            if plan is not None:
                bounded, note = self._bounded(view, plan), partial(self._note, view)
                plans[view.name] = self._restraint.follow(view, bounded, snapshot.now_s, note)
        if snapshot.cluster is not None:
            self._fit(usable, plans, unplaced, snapshot.cluster.copy())
        numbered = {
            view.name: _numbered(view, plans[view.name]) for view in usable if view.name in plans
        }
        return Planning(numbered, _sound(unplaced, {view.name for view in usable}))

    def _asked(self, snapshot: Snapshot) -> tuple[dict[str, Plan], dict[str, float]]:
        planning = self._policy.plan(snapshot)
        if not isinstance(planning, Planning):
            message = f"plan() answers {planning!r:.60}, which is no Planning"
            raise TypeError(message)
        names = {view.name for view in snapshot.functions}
        return dict(planning.plans), _sound(planning.unplaced, names)

    def _is_usable(self, view: FunctionView) -> bool:
        rates = [app.rate_rps for app in view.apps]
        objectives = [view.slo_s, *(app.slo_s for app in view.apps)]
        if not all(0 <= rate < math.inf for rate in rates):
            self._note(view, f"its rates are {rates}")
        elif not all(slo_s > 0 for slo_s in objectives) or not 0 < view.percentile < 1:
            self._note(view, f"its objectives are {objectives} s at {view.percentile}")
        elif not callable(getattr(view.model, "predict", None)):
            self._note(view, "it has no latency model")
        else:
            return True
        return False

    def _checked(self, view: FunctionView, plan: object) -> Plan | None:
        """The plan, if it is one and is for this function."""
        if plan is None:
            return None
        if not isinstance(plan, Plan) or plan.function != view.name:
            self.failures[view.name] = f"plan() answers {plan!r:.60} where its plan should be"
            return None
        return plan

    def _bounded(self, view: FunctionView, plan: Plan) -> Plan:
        total = plan_size.instances(plan)
        most = math.inf if view.max_instances is None else view.max_instances
        if total > most:
            self._note(view, f"{total} instances are more than its {most}")
            return plan_size.without(plan, total - int(most))
        if total < view.min_instances and plan.classes:
            self._note(view, f"{total} instances are fewer than its {view.min_instances}")
            first = plan.classes[0]
            more = replace(first, replicas=first.replicas + view.min_instances - total)
            return replace(plan, classes=(more, *plan.classes[1:]))
        return plan

    def _fit(
        self,
        views: Sequence[FunctionView],
        plans: dict[str, Plan],
        unplaced: dict[str, float],
        cluster: Cluster,
    ) -> None:
        """Take off what has no room beside what is placed already."""
        new = [(kind, view) for view in views for kind in _new(view, plans.get(view.name))]
        new.sort(key=lambda entry: (-entry[0].gpu, -entry[0].cpu))
        lacking: dict[str, Counter[str]] = {}
        for kind, view in new:
            size = view.model.resources(kind.batch_size, kind.cpu, kind.gpu)
            placed = place_up_to(cluster, size, kind.replicas)
            if placed < kind.replicas:
                lacking.setdefault(view.name, Counter())[kind.name] += kind.replicas - placed
        for view in views:
            if view.name in lacking:
                self._note(view, f"no room for {dict(lacking[view.name])}")
                plan, short = plans[view.name], lacking[view.name]
                plans[view.name] = replace(plan, classes=plan_size.less(plan.classes, short))
                lost = (
                    1 - plan_size.taken(plans[view.name]) / plan_size.taken(plan)
                    if plan_size.taken(plan)
                    else 0.0
                )
                unplaced[view.name] = max(unplaced.get(view.name, 0.0), lost * view.rate_rps)

    def _note(self, view: FunctionView, text: str) -> None:
        self.notes.setdefault(view.name, []).append(text)


def _new(view: FunctionView, plan: Plan | None) -> list[InstanceClass]:
    """The instances of a plan that are not there yet."""
    if plan is None:
        return []
    there = {name: one.ready + one.loading for name, one in view.instances.items()}
    sizes = {kind.name: (kind.batch_size, kind.cpu, kind.gpu) for kind in _classes(view)}
    found = []
    for kind in plan.classes:
        same = sizes.get(kind.name) == (kind.batch_size, kind.cpu, kind.gpu)
        lacking = kind.replicas - (there.get(kind.name, 0) if same else 0)
        if lacking > 0:
            found.append(replace(kind, replicas=lacking))
    return found


def _classes(view: FunctionView) -> tuple[InstanceClass, ...]:
    return view.plan.classes if view.plan else ()


def _numbered(view: FunctionView, plan: Plan) -> Plan:
    """The plan with the version after that of the one in force, if it is another."""
    before = view.plan
    if before is None or plan is before:
        return plan
    as_before = replace(
        plan, version=before.version, predicted=before.predicted, explain=before.explain
    )
    return before if as_before == before else replace(plan, version=before.version + 1)


def _sound(unplaced: Mapping[str, float], names: set[str]) -> dict[str, float]:
    """What is unplaced of functions that there are, where it is a rate."""
    return {
        name: rate_rps
        for name, rate_rps in unplaced.items()
        if name in names and 0 < rate_rps < math.inf
    }
