"""Planning rounds of a simulation: the planner's input, its duration, and unplaced loads.

The planner sees the reserved instances on the servers, as a live scaler sees the instances it has
requested, wherever they are. Nothing is planned after the horizon.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from scaler.planning.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.scaling import FunctionLoad
    from scaler.control.controller import Controller
    from scaler.control.planning_result import FunctionResult, SupportsPlan
    from scaler.scenarios.scenario import Scenario
    from simulator.cluster_capacity import ClusterCapacity
    from simulator.results import ScenarioResult

__all__ = ["SimulatedPlanning"]


class SimulatedPlanning:
    """Plans for the functions of one simulation.

    Args:
        planner: A guard around the policy.
        scenario: The scenario.
        capacity: Reserved instances.
        result: Receives the results.
        processes_known: Whether policies are given the arrival processes.

    Attributes:
        beginning: Whether nothing runs yet, so that planned instances start instantly, and
            functions that have a plan keep it.
    """

    def __init__(
        self,
        planner: SupportsPlan,
        scenario: Scenario,
        capacity: ClusterCapacity,
        result: ScenarioResult,
        *,
        processes_known: bool,
    ) -> None:
        self._planner = planner
        self._scenario = scenario
        self._capacity = capacity
        self._result = result
        self._processes = {
            function.name: {app.name: app.arrivals for app in function.apps}
            for function in (scenario.functions if processes_known else ())
        }
        self.beginning = False

    def plan(
        self, controllers: Mapping[str, Controller], loads: Mapping[str, FunctionLoad], now_s: float
    ) -> dict[str, FunctionResult]:
        """Plan as in `scaler.live_planner.Planner.plan`."""
        del controllers
        if now_s >= self._scenario.horizon_s:
            return {}
        if self.beginning:
            loads = {name: load for name, load in loads.items() if load.plan is None}
        reserved, result = self._capacity.reserved, self._result
        snapshot = Snapshot(
            now_s,
            tuple(map(self._shown, loads.values())) if self._processes else tuple(loads.values()),
            reserved.copy() if reserved is not None else None,
            self._scenario.prices,
            beginning=self.beginning,
        )
        began = time.perf_counter()
        planning = self._planner.plan(snapshot)
        result.planning_ms.append((time.perf_counter() - began) * 1000)
        for name, rate_rps in planning.unplaced.items():
            result.unplaced[name] = max(rate_rps, result.unplaced.get(name, 0.0))
        result.unplaced_reasons.update(planning.reasons)
        return {name: planning.of(name) for name in loads}

    def _shown(self, load: FunctionLoad) -> FunctionLoad:
        processes = self._processes[load.name]
        apps = (replace(app, arrivals=processes.get(app.name)) for app in load.apps)
        return replace(load, apps=tuple(apps))
