"""A function's front sidecar, which exchanges the same messages with the scaler as a real one.

It reports what was counted since its last report, and follows the plan, addresses and instance
conditions in the response. Between two reports it reports immediately if requests wait and there is
no instance, or if the arrival rate exceeds what it last reported.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sidecar.core.dispatch import apply_conditions
from sidecar.core.exec_time import ExecTime
from sidecar.core.front_report import FrontReports
from simulator.simulated_instance import Phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.plan import InstanceClass, Plan
    from carpool.sync import FrontReport
    from scaler.control.functions import Functions
    from simulator.event_queue import EventQueue
    from simulator.function_run import FunctionRun

__all__ = ["SimulatedFront"]

_SOON_S = 0.02  # shortest time between reports, even urgent ones; the scaler may set a longer one
_SENDER = "simulated"


class SimulatedFront:
    """The front sidecar of one function.

    Args:
        run: The function.
        functions: The scaler, through its sync API.
        events: Schedules the next report.

    Attributes:
        until_s: End of the reports.
    """

    def __init__(self, run: FunctionRun, functions: Functions, events: EventQueue) -> None:
        self._run = run
        self._functions = functions
        self._events = events
        self.until_s = math.inf
        self._reports = FrontReports(run.function.name, run.sidecar.load, run.sidecar.batcher)
        self._plan: Plan | None = None
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
        changed = answer.conditions != self._conditions
        self._conditions = answer.conditions
        if answer.plan is not None:
            self._reports.revision = answer.revision
            self._follow(answer.plan, answer.instances, now)
        elif changed:
            apply_conditions([each.upstream for each in run.serving], self._conditions)
            run.version += 1
            run.sidecar.conditions_changed(now)
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
        """Return the next report; requests that are not simulated one by one count as well."""
        self._sequence += 1
        for caller in self._run.callers:
            caller.count_skipped(now)
        return self._reports.report(
            _SENDER, self._sequence, now, self._plan, self._run.serving, outcomes={}
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
                    instance.upstream.join(classes[name], self._exec_times[classes[name]])
                    members.append(instance)
        self._plan = plan
        run.version += 1
        apply_conditions([each.upstream for each in members], self._conditions)
        run.sidecar.replan(plan, members, now)
