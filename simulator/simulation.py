"""A scenario in simulated time under one scaling policy.

Time goes from planning round to planning round. Arrivals are drawn and put in order beforehand,
one interval at a time, and need no entry in the agenda; everything else that happens has one.
After the horizon nothing arrives and nothing is planned, and all that waits comes to its end.
"""

from __future__ import annotations

import heapq
import math
import time
from typing import TYPE_CHECKING

import numpy as np

from scaler.planning import cost
from scaler.planning.placement import Cluster
from scaler.planning.snapshot import Snapshot
from simulator.arrivals import Arrivals, merged
from simulator.capacity import Capacity
from simulator.event_queue import EventQueue
from simulator.execution import Executions
from simulator.fleet import Fleet
from simulator.function_run import FunctionRun, Simulated
from simulator.interval_cache import IntervalCache
from simulator.plan_schedule import PlanSchedule
from simulator.rates import LiveRates, Rates
from simulator.reserved_cost import ReservedCost
from simulator.settings import Settings
from simulator.simulated_sidecar import SimulatedSidecar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scaler.arrivals.processes import Times
    from scaler.control.planner import Planner
    from scaler.scenarios.scenario import Function, Scenario

__all__ = ["Simulation"]

_ASK_AGAIN_S = 1.0  # a function without instances is planned for out of turn, at most so often


class Simulation:
    """One run.

    Args:
        scenario: What runs where, and what comes.
        planner: Plans: a guard, with the policy behind it.
        settings: How to simulate.
        progress: Told now and then how much of the horizon is over, 0 to 1.
    """

    def __init__(
        self,
        scenario: Scenario,
        planner: Planner,
        settings: Settings | None = None,
        progress: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._scenario = scenario
        self._planner = planner
        self._settings = settings or Settings()
        self._progress = progress
        self._agenda = EventQueue()
        self._room = Capacity(Cluster(scenario.nodes) if scenario.nodes else None)
        self._tracks = [self._track(each) for each in scenario.functions]
        self._callers = [caller for track in self._tracks for caller in track.lane.callers]
        self._outcome = Simulated(self._tracks, priced=scenario.prices.given)
        self._regimes = IntervalCache() if self._settings.rate_level else None
        follows = self._settings.live_rates and not self._regimes
        first = [sum(track.rates.at(0.0)) for track in self._tracks]
        self._looks = PlanSchedule(first, self._settings.interval_s) if follows else None

    def run(self) -> Simulated:
        """Simulate all of it."""
        scenario, interval_s = self._scenario, self._settings.interval_s
        processes = [app.arrivals for function in scenario.functions for app in function.apps]
        arrivals = Arrivals(processes, scenario.horizon_s, scenario.seed)
        number, start = 0, 0.0
        while start < scenario.horizon_s:
            self._progress(start / scenario.horizon_s)
            if self._looks:
                start = self._look(start, arrivals)
                continue
            number += 1
            end = min(number * interval_s, scenario.horizon_s)
            self._interval(start, end, arrivals.take(end))
            start = end
        while not all(track.lane.batcher.idle for track in self._tracks):
            self._agenda.run_next()
        for track in self._tracks:
            track.settle()
            for instance in track.fleet.alive.values():
                track.held.count(instance, scenario.horizon_s)
        return self._outcome

    def _look(self, start: float, arrivals: Arrivals) -> float:
        """One interval as long as a live scaler lets it be; its end."""
        assert self._looks is not None  # noqa: S101  whoever calls has looked
        due = min(start + self._looks.step_s(start), self._scenario.horizon_s)
        times = arrivals.take(due)
        end = self._looks.end(due, self._shared_out(times))
        if end < due:
            cuts = [int(np.searchsorted(each, end, side="right")) for each in times]
            arrivals.give_back([each[cut:] for each, cut in zip(times, cuts, strict=True)])
            times = [each[:cut] for each, cut in zip(times, cuts, strict=True)]
        self._interval(start, end, times)
        return end

    def _interval(self, start: float, end: float, times: list[Times]) -> None:
        by_track = self._shared_out(times)
        for track, own in zip(self._tracks, by_track, strict=True):
            track.rates.note(start, end, own)
        self._plan(start, self._tracks)
        replayed = times
        if self._regimes:
            replayed = self._regimes.pick(self._tracks, by_track, start, end)
        self._outcome.simulated += sum(map(len, replayed))
        self._replay(replayed, end)
        for track, own in zip(self._tracks, by_track, strict=True):
            served = track.settle()
            if self._regimes:
                self._regimes.learn(track, served)
            track.note(start, end, own)

    def _replay(self, times: Sequence[Times], end: float) -> None:
        """Let everything happen until ``end``."""
        entries, arrivals = self._agenda.entries, [caller.arrive for caller in self._callers]
        for at, whose in zip(*merged(times), strict=True):
            while entries and entries[0][0] <= at:
                when, _, call, arguments = heapq.heappop(entries)
                call(when, *arguments)
            arrivals[whose](at)
        self._agenda.run(end)

    def _plan(self, now: float, tracks: Sequence[FunctionRun]) -> None:
        """One planning round."""
        known = self._settings.processes_known
        loaded = now == 0 and not self._settings.cold
        snapshot = Snapshot(
            now,
            tuple(track.view(now, processes_known=known) for track in tracks),
            self._room.cluster.copy() if self._room.cluster is not None else None,
            self._scenario.prices,
            beginning=loaded,
        )
        began = time.perf_counter()
        planning = self._planner.plan(snapshot)
        self._outcome.planning_ms.append((time.perf_counter() - began) * 1000)
        for name, rate_rps in planning.unplaced.items():
            self._outcome.unplaced[name] = max(rate_rps, self._outcome.unplaced.get(name, 0.0))
        for track in tracks:
            plan = planning.plans.get(track.function.name)
            if plan is not None:
                track.fleet.apply(plan, now, loaded=loaded)
        self._outcome.fragmentation.append(self._room.fragmentation())

    def _shared_out(self, times: list[Times]) -> list[list[Times]]:
        """The arrivals of each function's applications."""
        left = iter(times)
        return [[next(left) for _ in track.function.apps] for track in self._tracks]

    def _track(self, function: Function) -> FunctionRun:
        scenario, settings = self._scenario, self._settings
        billing = cost.billing(scenario.prices)
        held = ReservedCost(billing, scenario.horizon_s)
        seed = f"{scenario.seed} {function.name}"
        stages = function.stages if function.executor == "lazy" else 0
        executions = Executions(
            function.model, billing, settings.noise, seed, stages, settings.quota
        )
        fleet = Fleet(executions, held, self._room, self._agenda)
        asked = -math.inf

        def starving(now: float) -> None:
            nonlocal asked
            if now >= asked + _ASK_AGAIN_S:
                asked = now
                self._plan(now, [track])

        fleet.lane = lane = SimulatedSidecar(
            function.apps, fleet, self._agenda, settings.queue_max, starving, settings.way_s
        )
        first = [0.0 if settings.cold else app.arrivals.rate(0.0) for app in function.apps]
        measure = LiveRates if settings.live_rates else Rates
        rates = measure(first, settings.window_s or settings.interval_s)
        track = FunctionRun(function=function, held=held, fleet=fleet, lane=lane, rates=rates)
        return track
