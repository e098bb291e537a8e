"""Decides how many instances of a plan should be there now; some may sleep until they are needed.

Without a keep-alive there are as many instances as the plan has. With one, an instance that is idle
for longer is released, even if the plan has it, and loaded again when a request waits and no
instance is free. If the keep-alive applies to the last instance only, a busy function has all
planned instances; an idle one has at least one between the two times, and none outside them.

Only counts are decided here. The platform chooses which of several equal instances is removed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.plan import Plan

__all__ = ["ClassInstances", "DesiredReplicas", "FunctionState"]


@dataclass(frozen=True, slots=True)
class ClassInstances:
    """Instances of one class: seconds that each ready one has been idle, and how many load."""

    idle_s: tuple[float, ...] = ()
    loading: int = 0

    @property
    def count(self) -> int:
        """Number of instances, ready or loading."""
        return len(self.idle_s) + self.loading


@dataclass(frozen=True, slots=True)
class FunctionState:
    """State of a function at one moment.

    Attributes:
        present: Its instances by class.
        idle_s: Seconds since a request last waited or was executed; None while one does.
        queued: Number of waiting requests.
        starving: Whether a request waits and no instance can be reached.
        load_s: Seconds that an instance takes to load.
        least: Minimum number of instances.
    """

    present: Mapping[str, ClassInstances] = field(default_factory=dict)
    idle_s: float | None = None
    queued: int = 0
    starving: bool = False
    load_s: float = 0.0
    least: int = 0


class DesiredReplicas:
    """Decides which instances of one function's plan sleep."""

    def __init__(self) -> None:
        self._asleep: dict[str, int] = {}

    @property
    def asleep(self) -> int:
        """Number of planned instances that sleep."""
        return sum(self._asleep.values())

    def wanted(self, plan: Plan, state: FunctionState) -> dict[str, int]:
        """Return the desired number of instances of each class, including those only kept warm."""
        counts = {each.name: each.replicas for each in plan.classes}
        last_only = plan.last_only or plan.prewarm_s > 0
        if plan.keep_alive_s is not None and not last_only:
            counts = self._kept(plan, plan.keep_alive_s, state)
        else:
            self._asleep = {}
            if last_only and state.idle_s is not None:
                counts = _last(plan, counts, state.idle_s, state)
        return _at_least(_floor(state), counts, plan)

    def _kept(self, plan: Plan, keep_alive_s: float, state: FunctionState) -> dict[str, int]:
        before, self._asleep = self._asleep, {}
        counts = {}
        for each in plan.classes:
            present = state.present.get(each.name, ClassInstances())
            stale = sum(idle_s >= keep_alive_s for idle_s in present.idle_s)
            slept = min(before.get(each.name, 0), each.replicas)
            gone = min(slept, max(0, each.replicas - present.count))  # the others are on their way
            self._asleep[each.name] = min(each.replicas, max(slept, gone + stale))
            fresh = len(present.idle_s) - stale
            counts[each.name] = max(each.replicas - self._asleep[each.name], fresh)
        for name, present in state.present.items():
            if name not in counts:
                counts[name] = sum(idle_s < keep_alive_s for idle_s in present.idle_s)
        self._wake(plan, state, counts)
        return counts

    def _wake(self, plan: Plan, state: FunctionState, counts: dict[str, int]) -> None:
        """Wake as many instances as waiting requests need if no instance is free."""
        sizes = {each.name: each.batch_size for each in plan.classes}
        free = any(idle_s > 0 for p in state.present.values() for idle_s in p.idle_s)
        waiting = 0 if free and not state.starving else state.queued
        waiting -= sum(p.loading * sizes.get(name, 1) for name, p in state.present.items())
        for each in plan.classes:
            woken = min(self._asleep[each.name], max(0, math.ceil(waiting / each.batch_size)))
            self._asleep[each.name] -= woken
            awake = each.replicas - self._asleep[each.name]
            counts[each.name] = max(counts[each.name], awake)
            waiting -= woken * each.batch_size


def _floor(state: FunctionState) -> int:
    """Return the least number of instances: one suffices for requests that wait without any."""
    return max(state.least, 1 if state.starving or state.queued else 0)


def _last(
    plan: Plan, counts: dict[str, int], idle_s: float, state: FunctionState
) -> dict[str, int]:
    """Return at least one instance between the two idle times, and none outside them."""
    until_s = math.inf if plan.keep_alive_s is None else plan.keep_alive_s
    early_s = plan.prewarm_s - state.load_s if plan.prewarm_s else -math.inf
    if not early_s <= idle_s < until_s:
        return dict.fromkeys(counts, 0)
    if any(counts.values()) or not counts:
        return counts
    there = [name for name, present in state.present.items() if present.count and name in counts]
    return {**counts, (there or list(counts))[0]: 1}


def _at_least(least: int, counts: dict[str, int], plan: Plan) -> dict[str, int]:
    lacking = least - sum(counts.values())
    if lacking <= 0 or not plan.classes:
        return counts
    first = plan.classes[0].name
    return {**counts, first: counts.get(first, 0) + lacking}
