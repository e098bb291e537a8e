"""A function's front sidecar, which exchanges the same messages with the scaler as a real one.

It reports what was counted since its last report, and follows the plan, addresses and instance
conditions in the response. Between two reports it reports immediately if requests wait and there is
no instance, or if the arrival rate exceeds what it last reported.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from carpool.sync import AppReport, ClassReport, FrontReport, InstanceReport
from carpool.variants.instance_states import State
from sidecar.core.exec_time import ExecTime
from simulator.instance import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from carpool.plan import InstanceClass, Plan
    from scaler.functions import Functions
    from sidecar.core.surge import SurgeDetector
    from simulator.event_queue import EventQueue
    from simulator.function_run import FunctionRun
    from simulator.instance import Instance

__all__ = ["Front"]

_SOON_S = 0.02  # at the soonest, however urgent; the scaler may say later


class Front:
    """The front sidecar of one function.

    Args:
        run: The function.
        functions: The scaler, through its sync API.
        events: Schedules the next report.
        surge: Detects rates above the reported one.

    Attributes:
        until_s: End of the reports.
    """

    def __init__(
        self, run: FunctionRun, functions: Functions, events: EventQueue, surge: SurgeDetector
    ) -> None:
        self._run = run
        self._functions = functions
        self._events = events
        self.surge = surge
        self.until_s = math.inf
        self._revision = ""
        self._version: int | None = None
        self._sequence = 0
        self._told_s = 0.0
        self._due_s = math.inf
        self._soonest_s = _SOON_S
        self._exec_times: dict[InstanceClass, ExecTime] = {}
        self._conditions: Mapping[str, str] = {}

    def urgent(self, now: float) -> None:
        """Report to the scaler as soon as it accepts a report."""
        self._speak_at(max(now, self._told_s + self._soonest_s))

    def speak(self, now: float) -> None:
        """Send a report and apply the response."""
        run, functions = self._run, self._functions
        report = self._report(now)
        self._told_s = now
        functions.reported(run.controller, report)
        answer = functions.answer(run.controller, report)
        if answer.plan is not None:
            self._revision = answer.revision
            self._follow(answer.plan, answer.instances, now)
        if answer.conditions != self._conditions:
            self._conditions = answer.conditions
            self._apply_conditions(now)
        for instance in run.instances.values():
            if instance.phase is Phase.READY and not instance.serving:
                run.announce(instance, "ready")  # nothing else announces it
        self._soonest_s = min(max(_SOON_S, answer.soonest_s), answer.interval_s)
        self._due_s = math.inf
        if now < self.until_s:
            self._speak_at(now + answer.interval_s)

    def _speak_at(self, due_s: float) -> None:
        if due_s < self._due_s:
            self._due_s = due_s
            self._events.at(due_s, self._due, due_s)

    def _due(self, now: float, due_s: float) -> None:
        if due_s == self._due_s:
            self.speak(now)

    def _report(self, now: float) -> FrontReport:
        run, sidecar = self._run, self._run.sidecar
        self._sequence += 1
        serving = [instance for instance in run.instances.values() if instance.serving]
        counts = {caller.app.name: caller.take(now) for caller in run.callers}
        surging = self.surge.reported(now)
        return FrontReport(
            function=run.function.name,
            sender="front",
            sequence=self._sequence,
            revision=self._revision,
            version=self._version,
            period_s=now - self._told_s,
            idle_s=max(0.0, now - sidecar.idle_since) if sidecar.batcher.idle else None,
            idle=sidecar.take_idle_times(),
            queued=sidecar.waiting,
            starving=sidecar.waiting > 0 and not serving,
            apps=tuple(AppReport(name, count) for name, count in counts.items() if count),
            classes=tuple(self._classes(serving)),
            instances=tuple(_seen(instance, now) for instance in serving),
            surging=surging,
        )

    def _classes(self, serving: list[Instance]) -> Iterator[ClassReport]:
        by_class: defaultdict[str, list[Instance]] = defaultdict(list)
        for instance in serving:
            if instance.batches:
                by_class[instance.upstream.instance_class].append(instance)
        for name, instances in by_class.items():
            times = instances[0].upstream.exec_time
            base_s, per_item_s = times.line() if times.settled else (0.0, 0.0)
            yield ClassReport(
                name,
                sum([i.batches for i in instances]),
                sum([i.item_count for i in instances]),
                sum([i.exec_s for i in instances]),
                base_s,
                per_item_s,
            )

    def _follow(self, plan: Plan, addresses: Mapping[str, tuple[str, ...]], now: float) -> None:
        """Apply ``plan`` with the instances at these addresses."""
        run = self._run
        classes = {each.name: each.size for each in plan.classes}
        known = self._exec_times
        self._exec_times = {each: known.get(each, ExecTime()) for each in classes.values()}
        members = []
        for name, of_class in addresses.items():
            for address in of_class:
                instance = run.instances.get(address)
                if instance is not None and instance.phase in (Phase.READY, Phase.LEAVING):
                    instance.follow(classes[name], self._exec_times[classes[name]])
                    members.append(instance)
        self._version = plan.version
        run.version += 1
        run.sidecar.replan(plan, members, now)
        if self._conditions:
            self._apply_conditions(now)

    def _apply_conditions(self, now: float) -> None:
        """Apply the scaler's view of the instances, as `sidecar.runtime.upstreams` does."""
        by_class: defaultdict[str, list[Instance]] = defaultdict(list)
        for instance in self._run.serving:
            by_class[instance.upstream.instance_class].append(instance)
        for instances in by_class.values():
            said = [self._conditions.get(each.upstream.name, State.ACTIVE) for each in instances]
            well = State.ACTIVE.value in said
            for instance, state in zip(instances, said, strict=True):
                instance.upstream.overloaded = state == State.OVERLOADED.value
                instance.upstream.interfered = state == State.INTERFERED.value and well
        self._run.version += 1
        self._run.sidecar.conditions_changed(now)


def _seen(instance: Instance, now: float) -> InstanceReport:
    """Return the report of an instance and reset its counts."""
    upstream = instance.upstream
    report = InstanceReport(
        upstream.name,
        upstream.instance_class,
        True,  # noqa: FBT003  whether it can be reached
        upstream.in_flight,
        max(0.0, now - instance.used),
        instance.batches,
        instance.item_count,
        instance.exec_s,
    )
    instance.batches = instance.item_count = 0
    instance.exec_s = 0.0
    return report
