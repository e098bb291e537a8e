"""Reports of a simulated front: what the scaler learns is what happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from carpool.arrivals.processes import Trace
from simulator.settings import Settings
from simulator.simulation import Simulation
from tests.simulator.load import At, Constant, Scripted, function, linear, plan, scenario

if TYPE_CHECKING:
    from carpool.plan import Plan
    from carpool.scaling import FunctionLoad


def shrinking(now_s: float, load: FunctionLoad) -> Plan:
    """Return a plan with four instances, and one after two seconds."""
    version = 1 if now_s < 2.0 else 2
    if load.plan and load.plan.version == version:
        return load.plan
    return plan(load.name, version, 4 if version == 1 else 1, 4)


def test_every_request_and_every_batch_is_reported_once() -> None:
    """Arrivals and batches in the reports are those of the run, also of instances that leave."""
    times = tuple(np.arange(0.005, 4.0, 0.01).tolist())
    scenes = scenario(function(At(times), linear(0.02)), horizon_s=20.0)
    (run,) = Simulation(scenes, Scripted(shrinking), Settings(interval_s=0.5)).run().functions
    reports = run.controller.reports
    assert {"web": len(times)} == reports.arrivals
    assert {"a": len(times)} == reports.item_count
    assert run.total.batches == reports.batches["a"]
    assert run.total.busy_core_s == pytest.approx(reports.exec_s["a"], abs=1e-4)


def test_an_interval_that_is_not_simulated_is_reported_in_full() -> None:
    """In the faster mode the scaler learns of all requests, however reports and intervals fall."""
    rates = (20.0, 90.0, 30.0, 60.0) * 3
    process = Trace(tuple(200.0 * n for n in range(len(rates))), rates, 200.0 * len(rates))
    simulation = Simulation(
        scenario(function(process, linear(0.05, 0.02)), horizon_s=process.end_s),
        Constant(Constant.Params(replicas=8, batch=4)),
        Settings(interval_s=10.0, rate_level=True),
    )
    result = simulation.run()
    (run,) = result.functions
    assert result.simulated < 0.8 * run.requests
    assert run.requests == pytest.approx(run.controller.reports.arrivals["web"], rel=0.001)
