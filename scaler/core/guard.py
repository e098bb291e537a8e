"""Stands between a scaling policy and what its plans are carried out on.

Theory of operation
-------------------
Policies stay naive; what every one of them should be kept from is kept from them here, in order:

1. A function whose numbers are no numbers is not shown to the policy and keeps its plan, and so do
   all if the policy raises. What is not known is no reason to scale.
2. A plan for a function that is not there, or of another shape than it has to be, is dropped.
3. Its instances are brought within the function's bounds, and new ones to a number that may start
   in one round.
4. Of the plans of the last ``window_s`` the one that takes the most counts, so that a dip of the
   load stops nothing; and between two reductions there are ``cool_down_s``.
5. A reduction goes at most a part of the way in one round, on the classes that there are.
6. What has no room on the servers is taken off again, and its rate is unplaced.

A guard is itself a policy, so it can stand wherever one can.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from carpool.plan import InstanceClass, Plan
from scaler.core.policy import Planning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler.core.placement import Cluster
    from scaler.core.policy import ScalePolicy
    from scaler.core.snapshot import FunctionView, Snapshot

__all__ = ["Guard", "Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """How fast plans may follow a policy.

    Attributes:
        window_s: A reduction has to be wanted for so long.
        cool_down_s: Seconds between two reductions.
        growth: New instances in a round, as a multiple of those there are.
        growth_least: So many may start in any round.
        shrink: The part of the instances of a class that may stop in a round.
    """

    window_s: float = 60.0
    cool_down_s: float = 0.0
    growth: float = 4.0
    growth_least: int = 16
    shrink: float = 0.5


@dataclass(slots=True)
class _History:
    """What was wanted for a function in the last while, and when it was last reduced."""

    wanted: deque[tuple[float, Plan]] = field(default_factory=deque)
    reduced_s: float = -math.inf


class Guard:
    """A policy whose plans are safe to carry out.

    Attributes:
        notes: Why functions kept their plan, or got another than the policy wanted, in the last
            round, by name.
    """

    def __init__(self, policy: ScalePolicy, limits: Limits | None = None) -> None:
        self._policy = policy
        self._limits = limits or Limits()
        self._history: dict[str, _History] = {}
        self.notes: dict[str, list[str]] = {}

    def plan(self, snapshot: Snapshot) -> Planning:
        """As `ScalePolicy.plan`; raises nothing."""
        self.notes = {}
        usable = tuple(view for view in snapshot.functions if self._is_usable(view))
        try:
            planning = self._policy.plan(replace(snapshot, functions=usable))
            wanted, unplaced = dict(planning.plans), dict(planning.unplaced)
        except Exception as error:  # noqa: BLE001  a policy may be anybody's
            for view in usable:
                self._note(view, f"the policy failed: {type(error).__name__}: {error}")
            return Planning({})
        plans = {}
        for view in usable:
            plan = self._checked(view, wanted.get(view.name))
            if plan is not None:
                plans[view.name] = self._guarded(view, plan, snapshot.now_s)
        if snapshot.cluster is not None:
            self._fit(usable, plans, unplaced, snapshot.cluster.copy())
        numbered = {
            view.name: _numbered(view, plans[view.name]) for view in usable if view.name in plans
        }
        return Planning(numbered, _sound(unplaced, {view.name for view in usable}))

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
            self._note(view, f"the policy's plan is none for it: {plan!r:.60}")
            return None
        return plan

    def _guarded(self, view: FunctionView, plan: Plan, now_s: float) -> Plan:
        bounded = self._bounded(view, plan)
        steady = self._steady(view, bounded, now_s)
        before = view.plan
        if before is None or steady is before or _taken(steady) >= _taken(before):
            return self._grown(view, steady)
        self._history[view.name].reduced_s = now_s
        return self._grown(view, self._part_way(view, before, steady))

    def _bounded(self, view: FunctionView, plan: Plan) -> Plan:
        total = _instances(plan)
        most = math.inf if view.max_instances is None else view.max_instances
        if total > most:
            self._note(view, f"{total} instances are more than its {most}")
            return _without(plan, total - int(most))
        if total < view.min_instances and plan.classes:
            self._note(view, f"{total} instances are fewer than its {view.min_instances}")
            first = plan.classes[0]
            more = replace(first, replicas=first.replicas + view.min_instances - total)
            return replace(plan, classes=(more, *plan.classes[1:]))
        return plan

    def _steady(self, view: FunctionView, plan: Plan, now_s: float) -> Plan:
        """Of the plans wanted in the window, that which takes the most, the latest of equals."""
        before = view.plan
        if view.name not in self._history:  # what is in force has been wanted, before a restart too
            self._history[view.name] = _History(deque([(now_s, before)] if before else ()))
        history = self._history[view.name]
        wanted = history.wanted
        while wanted and wanted[0][0] <= now_s - self._limits.window_s:
            wanted.popleft()
        while wanted and _taken(wanted[-1][1]) <= _taken(plan):
            wanted.pop()
        wanted.append((now_s, plan))
        chosen = wanted[0][1]
        if chosen is not plan:
            self._note(view, "a reduction has not been wanted for long enough")
        if before is None or _taken(chosen) >= _taken(before):
            return chosen
        if now_s < history.reduced_s + self._limits.cool_down_s:
            self._note(view, "the last reduction was not long enough ago")
            return before
        return chosen

    def _grown(self, view: FunctionView, plan: Plan) -> Plan:
        """The plan with no more new instances than may start in one round."""
        there = _instances(view.plan) if view.plan else 0
        most = there + max(self._limits.growth_least, math.floor(there * self._limits.growth))
        if _instances(plan) <= most:
            return plan
        self._note(view, f"{_instances(plan)} instances are too many to have at once")
        return _without(plan, _instances(plan) - most)

    def _part_way(self, view: FunctionView, before: Plan, plan: Plan) -> Plan:
        """The new plan, or if that stops too many at once the old one with fewer instances."""
        after = {kind.name: kind.replicas for kind in plan.classes}
        kept = 1 - self._limits.shrink
        reduced = tuple(
            replace(
                kind,
                replicas=max(
                    min(after.get(kind.name, 0), kind.replicas), math.ceil(kind.replicas * kept)
                ),
            )
            for kind in before.classes
        )
        there = {kind.name: kind.replicas for kind in reduced}
        if all(after.get(name, 0) >= count for name, count in there.items() if count > 1):
            return plan
        self._note(view, "more instances would stop than may in one round")
        return replace(before, classes=reduced)

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
            for placed in range(kind.replicas):
                node = cluster.best_fit(size)
                if node is None:
                    lacking.setdefault(view.name, Counter())[kind.name] += kind.replicas - placed
                    break
                cluster.place(size, node)
        for view in views:
            if view.name in lacking:
                self._note(view, f"no room for {dict(lacking[view.name])}")
                plan, short = plans[view.name], lacking[view.name]
                plans[view.name] = replace(plan, classes=_less(plan.classes, short))
                lost = 1 - _taken(plans[view.name]) / _taken(plan) if _taken(plan) else 0.0
                unplaced[view.name] = max(unplaced.get(view.name, 0.0), lost * view.rate_rps)

    def _note(self, view: FunctionView, text: str) -> None:
        self.notes.setdefault(view.name, []).append(text)


def _instances(plan: Plan) -> int:
    return sum(kind.replicas for kind in plan.classes)


def _taken(plan: Plan) -> float:
    """Requests per second that a plan's instances take, or how many at a time if it says none."""
    return sum(
        kind.replicas * (kind.batch_size if kind.rate_high is None else kind.rate_high)
        for kind in plan.classes
    )


def _without(plan: Plan, count: int) -> Plan:
    """The plan with so many instances fewer, those that take the least first."""
    fewer: Counter[str] = Counter()
    for kind in sorted(plan.classes, key=lambda kind: kind.rate_high or kind.batch_size):
        fewer[kind.name] = min(kind.replicas, count - fewer.total())
    return replace(plan, classes=_less(plan.classes, fewer))


def _less(classes: Sequence[InstanceClass], fewer: Mapping[str, int]) -> tuple[InstanceClass, ...]:
    return tuple(
        replace(kind, replicas=kind.replicas - fewer.get(kind.name, 0)) for kind in classes
    )


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
