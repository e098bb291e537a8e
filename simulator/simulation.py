"""Simulate a scenario under one scaling policy: the live scaler with virtual instances.

Planning, comparing and requesting actions is done by the scaler's own `Round`, with one controller
per function, behind the sync API's `Functions`. Simulated are the provider that carries out the
actions, the sidecars that report, the callers, and the clock. Rounds run as a live scaler's do: at
regular intervals, and as soon as a sidecar reports something urgent.

Arrivals are drawn and sorted in advance, one interval at a time, and need no entry in the event
queue; every other event has one. After the horizon nothing arrives and nothing is planned, and
everything that waits is finished.
"""

from __future__ import annotations

import heapq
import itertools
import math
from typing import TYPE_CHECKING

from scaler.control.dependencies import Dependencies
from scaler.control.functions import Functions
from scaler.control.round import Driver, Round, at_once
from scaler.control.sync_pace import LEAST_PAUSE_S, Pace
from scaler.planning import cost
from scaler.planning.placement import Cluster
from sidecar.core.load_counter import LoadCounter
from simulator.application import SendingApplication
from simulator.arrivals import GeneratedArrivals, merged
from simulator.cluster_capacity import ClusterCapacity
from simulator.event_queue import EventQueue
from simulator.execution import Executions
from simulator.function_run import FunctionRun, SimulationResult, declared
from simulator.interval_cache import IntervalCache
from simulator.reserved_cost import ReservedCost
from simulator.settings import Settings
from simulator.simulated_front import SimulatedFront
from simulator.simulated_planning import SimulatedPlanning
from simulator.simulated_provider import SimulatedProvider
from simulator.simulated_sidecar import SimulatedSidecar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from carpool.arrivals.processes import Times
    from scaler.control.planning_result import SupportsPlan
    from scaler.scenarios.scenario import Function, Scenario
    from simulator.simulated_instance import SimulatedInstance

__all__ = ["Simulation"]

_OFTEN = 10_000  # arrivals or events after which progress is reported
_STRETCH_S = 2.0  # shortest period for which arrivals are drawn at once
_REPORTS = 20  # reports per interval, with --rate-level
_RUN_OUT_S = 600.0  # requests without an instance this long after the horizon are given up


class Simulation:
    """One simulation run.

    Args:
        scenario: The scenario.
        planner: A guard around the policy.
        settings: How to simulate.
        progress: Called occasionally with the fraction of the horizon done, 0 to 1.
    """

    def __init__(
        self,
        scenario: Scenario,
        planner: SupportsPlan,
        settings: Settings | None = None,
        progress: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._scenario = scenario
        self._settings = settings or Settings()
        self._progress = progress
        self._events = self._queue()
        self._capacity = ClusterCapacity(Cluster(scenario.nodes) if scenario.nodes else None)
        self._provider = self._run_by()
        self._functions = self._scaler()
        self._fronts: list[SimulatedFront] = []
        self._runs = [self._run_of(each) for each in scenario.functions]
        self._callers = [caller for run in self._runs for caller in run.callers]
        self._provider.run(self._runs)
        self._result = SimulationResult(self._runs, priced=scenario.prices.given)
        self._planning = SimulatedPlanning(
            planner,
            scenario,
            self._capacity,
            self._result,
            processes_known=self._settings.processes_known,
        )
        self._rounds = Round(self._functions, self._provider, self._planning.plan, Driver())
        self._interval_cache = IntervalCache() if self._settings.rate_level else None
        self._due_s = math.inf
        self._round_s = 0.0

    def run(self) -> SimulationResult:
        """Run the whole simulation."""
        scenario = self._scenario
        stretch_s = max(_STRETCH_S, self._settings.interval_s)
        processes = [app.arrivals for function in scenario.functions for app in function.apps]
        arrivals = GeneratedArrivals(processes, scenario.horizon_s, scenario.seed)
        self._begin()
        number, start = 0, 0.0
        while start < scenario.horizon_s:
            number += 1
            end = min(number * stretch_s, scenario.horizon_s)
            self._stretch(start, end, arrivals.take(end))
            start = end
        for number in itertools.count():
            if all(run.sidecar.batcher.idle for run in self._runs):
                break
            if number % _OFTEN == 0:
                self._progress(1.0)
            self._events.run_next()
        for run in self._runs:
            run.settle()
            for instance in run.instances.values():
                run.reserved.count(instance, scenario.horizon_s)
        return self._result

    def _queue(self) -> EventQueue:
        return EventQueue()

    def _run_by(self) -> SimulatedProvider:
        """Return the provider of the instances; a subclass may provide real ones."""
        return SimulatedProvider(self._events, self._capacity)

    def _begin(self) -> None:
        """Run the first round; in a warm system its instances exist immediately."""
        warm = not self._settings.cold
        self._provider.warm = self._planning.beginning = warm
        for front in self._fronts:
            front.speak(0.0)
        self._round(0.0)
        if warm:
            for run, front in zip(self._runs, self._fronts, strict=True):
                # Instances that have just become ready are announced.
                at_once(self._rounds.act(run.controller))
                front.speak(0.0)
        self._provider.warm = self._planning.beginning = False
        self._due_s = math.inf
        self._round_at(self._settings.interval_s)

    def _stretch(self, start: float, end: float, times: list[Times]) -> None:
        by_run = self._shared_out(times)
        replayed = times
        if self._interval_cache:
            replayed = self._interval_cache.pick(self._runs, by_run, start, end)
        self._result.simulated += sum(map(len, replayed))
        self._replay(replayed, start, end)
        for run, own in zip(self._runs, by_run, strict=True):
            outcomes = run.settle()
            if self._interval_cache:
                self._interval_cache.learn(run, outcomes)
            run.note(start, end, own)

    def _replay(self, times: Sequence[Times], start: float, end: float) -> None:
        """Process all events and arrivals until ``end``."""
        events = self._events
        entries, arrivals = events.entries, [caller.arrive for caller in self._callers]
        self._progress(start / self._scenario.horizon_s)
        for number, (at, whose) in enumerate(zip(*merged(times), strict=True), 1):
            if number % _OFTEN == 0:
                self._progress(at / self._scenario.horizon_s)
            while entries and entries[0][0] <= at:
                when, _, call, arguments = heapq.heappop(entries)
                events.now_s = when
                call(when, *arguments)
            arrivals[whose](at)
        events.run(end)

    def _wake(self) -> None:
        """Request a round before the regular time."""
        self._round_at(max(self._events.now_s, self._round_s + LEAST_PAUSE_S))

    def _round_at(self, due_s: float) -> None:
        if due_s < self._due_s:
            self._due_s = due_s
            self._events.at(due_s, self._round_due, due_s)

    def _round_due(self, now: float, due_s: float) -> None:
        if due_s == self._due_s:
            self._round(now)
            if now < self._scenario.horizon_s + _RUN_OUT_S:
                self._round_at(now + self._settings.interval_s)

    def _round(self, now: float) -> None:
        """Run one round of the scaler, without waiting."""
        self._due_s, self._round_s = math.inf, now
        self._functions.count()
        at_once(self._rounds.run())
        self._result.fragmentation.append(self._capacity.fragmentation())

    def _slowed(self, instance: SimulatedInstance) -> float:
        """Return the instance's relative slowdown by others that load on its server."""
        return self._settings.loading_slows * self._capacity.loading_beside(instance.place)

    def _shared_out(self, times: list[Times]) -> list[list[Times]]:
        """Group the applications' arrivals by function."""
        left = iter(times)
        return [[next(left) for _ in run.function.apps] for run in self._runs]

    def _scaler(self) -> Functions:
        """Return the scaler's initial state: these functions, and no sidecar."""
        settings, events = self._settings, self._events
        models = {each.name: each.model for each in self._scenario.functions}
        functions = Functions(
            Dependencies(window_s=settings.window_s, models=models, prewarm=settings.prewarm),
            Pace(settings.interval_s / _REPORTS) if settings.rate_level else Pace(),
            now=lambda: events.now_s,
            wall=lambda: events.now_s,
        )
        functions.wake = self._wake
        for function in self._scenario.functions:
            self._provider.declare(declared(function))
        functions.observe(self._provider.functions())
        return functions

    def _run_of(self, function: Function) -> FunctionRun:
        scenario, settings = self._scenario, self._settings
        billing = cost.billing(scenario.prices)
        stages = function.stages if function.executor == "lazy" else 0
        executions = Executions(
            function.model,
            billing,
            settings.noise,
            f"{scenario.seed} {function.name}",
            stages,
            settings.quota,
        )
        executions.factor = settings.exec_factor
        controller = self._functions.find(function.name)
        assert controller is not None  # noqa: S101  it has just been declared
        if start := settings.start.get(function.name):
            controller.follow(start, 0.0)
        run = FunctionRun(
            function=function,
            reserved=ReservedCost(billing, scenario.horizon_s),
            controller=controller,
            functions=self._functions,
            executions=executions,
        )
        first = {
            app.name: 0.0 if settings.cold else app.arrivals.rate(0.0) for app in function.apps
        }
        run.sidecar = SimulatedSidecar(
            function.apps,
            run.instances,
            self._events,
            settings.queue_max,
            LoadCounter(0.0, sum(first.values())),
            settings.network_s,
        )
        run.sidecar.slowed = self._slowed if settings.loading_slows else None
        run.callers = [SendingApplication(run.sidecar, app) for app in function.apps]
        front = SimulatedFront(run, self._functions, self._events)
        front.until_s = scenario.horizon_s + _RUN_OUT_S
        run.sidecar.urgent = run.sidecar.load.on_surge = front.urgent
        self._fronts.append(front)
        if not settings.cold:  # it has been measured before
            window_s = settings.window_s
            counts = {name: rate_rps * window_s for name, rate_rps in first.items()}
            controller.reports.rates.note(counts, window_s, 0.0)
        return run
