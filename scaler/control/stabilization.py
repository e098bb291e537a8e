"""How fast plans follow a policy: steadily, in steps, with limited reductions.

Theory of operation
-------------------
1. Among the plans wanted in the last ``window_s``, the one with the most capacity counts, so that a
   dip of the load stops nothing; reductions are at least ``cool_down_s`` apart. A plan that
   keeps all instances is no reduction, such as one that only shifts requests among them.
2. A reduction stops at most a share of each existing class in one round.
3. The number of new instances per round is limited.
4. Requests must not wait for what is held back: a plan that is kept gets the instances that the
   wanted plan has for applications that it does not serve. If there is no capacity for those, a
   reduction takes effect at once (`unserved`). If that has not helped within ``window_s``,
   reductions are held back as usual, as they do not free that capacity.

This module remembers what was wanted before; it does not know a function's bounds, or the
capacity of servers.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from scaler.control import plan_size
from scaler.control.unserved import lacks_capacity, serving

if TYPE_CHECKING:
    from collections.abc import Callable

    from carpool.plan import Plan
    from carpool.scaling import FunctionLoad

__all__ = ["Stabilization", "StabilizationLimits"]


@dataclass(frozen=True, slots=True)
class StabilizationLimits:
    """How fast plans may follow a policy.

    Attributes:
        window_s: Seconds that a reduction has to be wanted.
        cool_down_s: Seconds between two reductions.
        growth: New instances in a round, as a multiple of the existing ones.
        growth_least: Number of instances that may start in any round.
        shrink: Share of the instances of a class that may stop in a round.
    """

    window_s: float = 60.0
    cool_down_s: float = 0.0
    growth: float = 4.0
    growth_least: int = 16
    shrink: float = 0.5


@dataclass(slots=True)
class _History:
    """Plans wanted for a function recently.

    Attributes:
        wanted: Times and plans, each with more capacity than the next.
        reduced_s: Time of its last reduction.
        lacking_s: Time since which requests have waited for an instance without capacity.
    """

    wanted: deque[tuple[float, Plan]] = field(default_factory=deque)
    reduced_s: float = -math.inf
    lacking_s: float = math.inf


class Stabilization:
    """Applies the limits to the plans of every function.

    Args:
        limits: How fast plans may follow.
    """

    def __init__(self, limits: StabilizationLimits) -> None:
        self._limits = limits
        self._history: dict[str, _History] = {}

    def follow(
        self,
        load: FunctionLoad,
        plan: Plan,
        now_s: float,
        note: Callable[[str], None],
        *,
        in_steps: bool = True,
    ) -> Plan:
        """Return the plan that follows ``plan`` as closely as the limits permit now.

        Args:
            load: Load of the function, with the plan in force.
            plan: The wanted plan.
            now_s: Time of this round.
            note: Called with the reason if the plan is not followed entirely.
            in_steps: Whether the number of new instances is limited.
        """
        steady = serving(load, self._steady(load, plan, now_s, note), plan)
        before = load.plan
        if before is None or steady is before or not plan_size.reduces(steady, before):
            return self._grown(load, steady, note) if in_steps else steady
        self._history[load.name].reduced_s = now_s
        reduced = self._part_way(before, steady, note)
        return self._grown(load, serving(load, reduced, plan), note)

    def _steady(
        self, load: FunctionLoad, plan: Plan, now_s: float, note: Callable[[str], None]
    ) -> Plan:
        """Return the plan of most capacity wanted in the window, the latest of equal ones."""
        before = load.plan
        if before is None or load.name not in self._history:  # the plan in force counts as wanted
            self._history[load.name] = _History(deque([(now_s, before)] if before else ()))
        history = self._history[load.name]
        wanted = history.wanted
        while wanted and wanted[0][0] <= now_s - self._limits.window_s:
            wanted.popleft()
        while wanted and not plan_size.reduces(plan, wanted[-1][1]):
            wanted.pop()
        if wanted and not plan_size.reduces(plan, wanted[0][1]):
            wanted.clear()
        wanted.append((now_s, plan))
        chosen = wanted[0][1]
        if self._frees_capacity(load, chosen, plan, now_s):
            note("instances are removed at once, to free capacity for those that requests wait for")
            return plan
        if chosen is not plan:
            note(
                "the policy wants fewer instances, which are removed only after it has wanted this "
                f"for {self._limits.window_s:g} s"
            )
        if before is None or not plan_size.reduces(chosen, before):
            return chosen
        if now_s < history.reduced_s + self._limits.cool_down_s:
            note(
                "the policy wants fewer instances, but the last ones were removed less than "
                f"{self._limits.cool_down_s:g} s ago"
            )
            return before
        return chosen

    def _frees_capacity(
        self, load: FunctionLoad, current: Plan, wanted: Plan, now_s: float
    ) -> bool:
        """Return whether a reduction frees capacity for waiting requests, and may still help."""
        history = self._history[load.name]
        lacking = lacks_capacity(load, current, wanted)
        history.lacking_s = min(history.lacking_s, now_s) if lacking else math.inf
        return (
            lacking and current is not wanted and now_s < history.lacking_s + self._limits.window_s
        )

    def _grown(self, load: FunctionLoad, plan: Plan, note: Callable[[str], None]) -> Plan:
        """Return the plan, with as many new instances as may start in one round."""
        there = plan_size.instances(load.plan) if load.plan else 0
        most = there + max(self._limits.growth_least, math.floor(there * self._limits.growth))
        if plan_size.instances(plan) <= most:
            return plan
        note(f"{plan_size.instances(plan)} instances are too many to start at once")
        return plan_size.without(plan, plan_size.instances(plan) - most)

    def _part_way(self, before: Plan, plan: Plan, note: Callable[[str], None]) -> Plan:
        """Return the new plan, or the old one partly reduced if too many instances would stop."""
        after = {each.name: each.replicas for each in plan.classes}
        kept = 1 - self._limits.shrink
        reduced = tuple(
            replace(
                each,
                replicas=max(
                    min(after.get(each.name, 0), each.replicas), math.ceil(each.replicas * kept)
                ),
            )
            for each in before.classes
        )
        there = {each.name: each.replicas for each in reduced}
        if all(after.get(name, 0) >= count for name, count in there.items() if count > 1):
            return plan
        note("the plan stops more instances than may stop in one round")
        return replace(before, classes=reduced)
