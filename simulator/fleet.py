"""The instances of one function: which there are, and how a plan becomes some.

Theory of operation
-------------------
A plan says how many instances of each class there shall be. Those that are missing are placed by
best fit and load; who finds no room waits in line for it. Those that are too many go on serving
until the new ones have loaded, so that a change of sizes leaves no gap, and then get no more
batches: what they have comes back, and they are gone. With a keep-alive (`keep_alive`) they stay
for as long after their last batch, and serve again if a plan wants them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from scaler.control.transition import interim
from sidecar.core.exec_time import ExecTime
from simulator.instance import Instance, Phase
from simulator.keep_alive import KeepAlive

if TYPE_CHECKING:
    from carpool.plan import InstanceClass, Plan
    from simulator.capacity import Capacity
    from simulator.event_queue import EventQueue
    from simulator.execution import Executions
    from simulator.instance import Key
    from simulator.reserved_cost import ReservedCost
    from simulator.simulated_sidecar import SimulatedSidecar

__all__ = ["Fleet"]

_RANK = {Phase.SERVING: 0, Phase.RESTING: 1, Phase.LOADING: 2}


class Fleet:
    """The instances of one function.

    Args:
        executions: What they do.
        held: Adds up what having them takes.
        room: Where they are.
        agenda: Knows when they will have loaded.

    Attributes:
        lane: The queue that they serve.
        plan: The plan in force; None before the first.
        alive: All of them, by name.
        keep_alive: Those that sleep.
        version: Grows with every change of those that serve or load.
    """

    lane: SimulatedSidecar

    def __init__(
        self, executions: Executions, held: ReservedCost, room: Capacity, agenda: EventQueue
    ) -> None:
        self._executions = executions
        self._held = held
        self._room = room
        self._agenda = agenda
        self._exec_times: dict[InstanceClass, ExecTime] = {}
        self._kinds: dict[Key, InstanceClass] = {}
        self._short: dict[Key, int] = {}
        self._numbers = 0
        self.plan: Plan | None = None
        self.alive: dict[str, Instance] = {}
        self.keep_alive = KeepAlive(self, agenda)
        self.version = 0

    @property
    def serving(self) -> list[Instance]:
        """Those that get batches."""
        return [i for i in self.alive.values() if i.phase is Phase.SERVING]

    @property
    def steady(self) -> bool:
        """Whether the same ones go on serving while requests come as they do."""
        return not (self.keep_alive.restless or self._short) and all(
            i.wanted if i.phase is Phase.SERVING else i.idle for i in self.alive.values()
        )

    @property
    def idle(self) -> list[Instance]:
        """Those that could take a batch at once, were they sent one."""
        return [i for i in self.alive.values() if i.idle]

    @property
    def load_s(self) -> float:
        """How long one loads."""
        return self._executions.model.load_s

    def apply(self, plan: Plan, now: float, *, loaded: bool = False) -> None:
        """Do as ``plan`` says from now on.

        Args:
            plan: The new plan.
            now: Seconds.
            loaded: Missing instances are ready at once, as in a system that has been running.

        Raises:
            ConfigError: a class whose latency is not known.
        """
        missing = self.keep_alive.follow(plan, self._claim(plan))
        as_before = plan == self.plan and all(i.wanted for i in self.alive.values())
        if as_before and not any(missing.values()):
            return
        self.plan, self._short = plan, {}
        for instance in [i for i in self.alive.values() if i.phase is Phase.LOADING]:
            if not (instance.wanted or self.keep_alive.keeps):
                self.release(instance, now)
        for key, count in missing.items():
            for left in range(count, 0, -1):
                there = len(self.alive)
                self.start(key, now, loaded=loaded)
                if len(self.alive) == there and key in self._short:  # nor is there for the others
                    self._short[key] += left - 1
                    break
        self._announce(now)

    def demand(self, waiting: int, now: float) -> bool:
        """So many wait, and no instance is free; says whether one is coming or was there."""
        if not self.serving:
            for instance in self.idle:
                instance.employ(instance.kind, instance.execution, instance.upstream.exec_time)
                self.lane.join(instance, now)
                return False  # there is one, but the plan wants none
        self.keep_alive.demand(waiting, now)
        return any(i.phase is not Phase.RESTING for i in self.alive.values())

    def stand_by(self, now: float, used: float) -> None:
        """Have an instance load that the plan does not ask for, of its first class."""
        if self._kinds:
            self.start(next(iter(self._kinds)), now, used=used)

    def start(
        self, key: Key, now: float, *, loaded: bool = False, used: float | None = None
    ) -> None:
        """Place one more instance and have it load, as soon as there is room.

        Args:
            key: Its class and size.
            now: Seconds.
            loaded: It is ready at once.
            used: When it counts as last used once it has loaded, if not then.
        """
        size, kind = key[1], self._kinds[key]
        there, place = self._room.take(size)
        if not there and self._evict(now):
            there, place = self._room.take(size)
        if not there:
            self._short[key] = self._short.get(key, 0) + 1
            self._room.wait(self._fill)
            return
        self._numbers += 1
        execution = self._executions.of(kind)
        instance = Instance(f"{self._numbers}", kind, execution, place, now)
        instance.employ(kind, execution, self._exec_times[kind])
        self.alive[instance.upstream.name] = instance
        instance.used = -math.inf if used is None else used
        self.version += 1
        if loaded:
            self._loaded(instance, now)
        else:
            self._agenda.at(now + execution.load_s, self._ready, instance)

    def release(self, instance: Instance, now: float) -> None:
        """``instance``, which is idle, goes; if it has not gone to make room for another."""
        if instance.phase is Phase.GONE:
            return
        if instance.phase is Phase.SERVING:
            self.lane.leave(instance)
        self.version += instance.phase is not Phase.RESTING
        instance.phase = Phase.GONE
        del self.alive[instance.upstream.name]
        self._held.count(instance, now)
        self._room.give_back(instance.place)
        self._room.released(now)

    def _claim(self, plan: Plan) -> dict[Key, int]:
        """Note which instances ``plan`` wants, and how many it lacks of each kind."""
        present: defaultdict[Key, list[Instance]] = defaultdict(list)
        for instance in sorted(self.alive.values(), key=lambda i: _RANK[i.phase]):
            instance.wanted = False
            present[instance.key].append(instance)
        kinds = [replace(kind, replicas=0) for kind in plan.classes]
        self._exec_times = {kind: self._exec_times.get(kind, ExecTime()) for kind in kinds}
        self._kinds, lacking = {}, {}
        for kind, planned in zip(kinds, plan.classes, strict=True):
            execution = self._executions.of(kind)
            key = (kind.name, execution.size)
            self._kinds[key] = kind
            mine = present[key][: planned.replicas]
            for instance in mine:
                instance.employ(kind, execution, self._exec_times[kind])
            lacking[key] = planned.replicas - len(mine)
        return lacking

    def _announce(self, now: float) -> None:
        """Tell the queue what it is served by: the surplus only while others load."""
        assert self.plan is not None  # noqa: S101  what is announced is a plan
        surplus = [i for i in self.serving if not i.wanted]
        leaving = [] if self._awaited else surplus
        for instance in leaving:
            instance.phase = Phase.RESTING
        kinds = [] if leaving else [i.kind for i in surplus]
        self.lane.replan(interim(self.plan, kinds), self.serving, now)
        for instance in [*self.serving, *leaving]:
            if not instance.upstream.in_flight:
                self.keep_alive.rests(instance, now)

    def _evict(self, now: float) -> bool:
        """Release an instance that is only being kept, if there is one."""
        for instance in self.alive.values():
            if instance.phase is Phase.RESTING and not instance.upstream.in_flight:
                self.release(instance, now)
                return True
        return False

    def _fill(self, now: float) -> None:
        """There may be room for those that found none."""
        short, self._short = self._short, {}
        for key, count in short.items():
            for started in range(count):
                self.start(key, now)
                if key in self._short:
                    self._short[key] = count - started
                    break

    @property
    def _awaited(self) -> bool:
        """Whether instances load that the plan wants."""
        return any(i.wanted and i.phase is Phase.LOADING for i in self.alive.values())

    def _loaded(self, instance: Instance, now: float) -> None:
        instance.phase = Phase.SERVING
        instance.ready = now
        instance.used = now if instance.used < 0 else instance.used
        self.version += 1

    def _ready(self, now: float, instance: Instance) -> None:
        """``instance`` has loaded, if it is still there."""
        if instance.phase is not Phase.LOADING:
            return
        self._loaded(instance, now)
        self.lane.join(instance, now)
        if any(not i.wanted for i in self.serving) and not self._awaited:
            self._announce(now)
        elif not instance.upstream.in_flight:
            self.keep_alive.rests(instance, now)
