"""Prewarm policies and instance conditions in a simulation follow the live scaler's rules."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from carpool.scaling import Proposal
from scaler.control.guard import Guard
from scaler.policy_choice import prewarm_maker
from scaler.prewarm.contract import Windows
from scaler.scenarios.scenario_file import read_scenario
from simulator.metrics import measured
from simulator.settings import Settings
from simulator.simulation import Simulation
from tests.simulator.load import At, Constant, function, linear
from tests.simulator.load import run as run_of
from tests.simulator.load import scenario as of
from tests.simulator.test_instances import EXEC_S, HEARD_S, LEFT_S, LOAD_S, MODEL, between

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from carpool.scaling import ClusterView, FunctionLoad

run = partial(run_of, interval_s=0.5)


def test_prewarm_policy_overrides_plan_for_idle_function() -> None:
    """The prewarm policy releases an instance 5 s after its last use, whatever the plan says."""
    result = run(
        of(function(At((1.0, 20.0)), MODEL), horizon_s=40.0),
        Guard(Constant(Constant.Params())),
        prewarm=prewarm_maker("fixed", {"keep_alive_s": 5.0}),
    )
    least_s, later_s = 1.05 + 5.0 + LOAD_S + EXEC_S + 5.0, 2 * (HEARD_S + LEFT_S)
    assert between(least_s, least_s + later_s) == result["cpu_core_s"]
    assert pytest.approx(0.5) == result["cold_start_ratio"]


def test_prewarm_policy_gets_idle_times_and_loads_ahead() -> None:
    """A prewarm policy gets each idle time of a periodic call and makes all but one call warm.

    Before the first load its duration is unknown, so that load starts too late.
    """
    told: list[float] = []

    class Timer:
        """Prewarm policy that loads for a call 10 s after the last."""

        def observe(self, idle_s: float, now_s: float) -> None:
            del now_s
            told.append(idle_s)

        def windows(self, now_s: float) -> Windows:
            del now_s
            return Windows(8.0, 12.0)

        to_dict, absorb = dict, dict.update

    calls = tuple(10.0 + 10.0 * number for number in range(5))
    result = run(
        of(function(At(calls), MODEL), horizon_s=60.0),
        Guard(Constant(Constant.Params())),
        prewarm=Timer,
    )
    assert [10.0, *[10.0 - EXEC_S] * 4] == pytest.approx(told, rel=0.06)  # bins of 10 %
    assert pytest.approx(1 / len(calls)) == result["cold_start_ratio"]
    # Away for 8 s each time, less what loads ahead and what it takes to be told.
    assert result["cpu_core_s"] < 60.0 - 5 * (8.0 - LOAD_S - 3 * HEARD_S - LEFT_S)


VARIANTS = """{"variants": [
  {"name": "only", "accuracy": 0.7, "load_s": 1, "latencies_ms": {"1": 40}}]}"""
SCENARIO = """
models: {vision: {variants: vision.json}}
functions:
  - name: vision
    model: vision
    slo_ms: 500
    apps: [{name: a, arrivals: {poisson: {rate: RATE}}}]
horizon_s: 30
"""


class Two:
    """Policy that proposes two instances of the only size."""

    def propose(self, loads: Sequence[FunctionLoad], cluster: ClusterView) -> dict[str, Proposal]:
        """Propose two instances, as `ScalePolicy.propose`."""
        del cluster
        return {load.name: Proposal({load.sizes[0]: 2}) for load in loads}


@pytest.mark.parametrize(("rate", "overloaded"), [("20", False), ("44", True)])
def test_overloaded_instances_are_reported_to_fronts(
    tmp_path: Path, rate: str, *, overloaded: bool
) -> None:
    """At 44 of about 50 requests a second two instances are reported as overloaded, at 20 not."""
    (tmp_path / "vision.json").write_text(VARIANTS)
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO.replace("RATE", rate))
    simulation = Simulation(read_scenario(path), Guard(Two()), Settings())
    outcome = simulation.run()
    assert 0 == measured(outcome)["cold_start_ratio"]
    (run,) = outcome.functions
    assert overloaded == any("overloaded" in decision.text for decision in run.controller.decisions)


def test_interfered_instance_gets_no_batches_until_it_recovers() -> None:
    """An interfered instance gets no batches until it recovers."""
    simulation = Simulation(
        of(function(At((0.5, 1.0, 1.2, 2.0)), linear(0.6)), horizon_s=3.0),
        Constant(Constant.Params(replicas=2)),
        Settings(),
    )
    run = simulation.run().functions[0]
    first, second = run.sidecar.batcher.upstreams
    first.interfered = True
    run.sidecar.conditions_changed(4.0)
    assert 1 == run.sidecar.free
    second.interfered, first.interfered = True, False
    run.sidecar.conditions_changed(5.0)
    assert 1 == run.sidecar.free
    second.interfered = False
    run.sidecar.conditions_changed(6.0)
    assert 2 == run.sidecar.free
