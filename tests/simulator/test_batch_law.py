"""Simulated batches match the exact law; the equation printed in BATCH is further off."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.batch_cases import (
    MODEL,
    WORKLOADS,
    Workload,
    exact_ms,
    printed_ms,
    seconds_by_size,
    simulated_ms,
)
from carpool.arrivals.markov import mmpp2
from carpool.arrivals.processes import Poisson
from scaler.control.guard import Guard
from scaler.policies.batch.batch_law import BatchLaw, Service
from scaler.policies.batch.queueing import LimitedInstances, least_instances
from scaler.policy_choice import chosen_policy
from scaler.scenarios.scenario_file import read_scenario
from simulator.metrics import measured
from simulator.settings import Settings
from simulator.simulation import Simulation
from tests.effort import loosened, scaled
from tests.simulator.load import Constant, function, run
from tests.simulator.load import scenario as of

if TYPE_CHECKING:
    from carpool.arrivals.map_counts import Markovian

SCENARIO = Path(__file__).parents[2] / "examples" / "scenarios" / "batch.yaml"


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: str(workload.name))
@pytest.mark.parametrize(("size", "window_s"), [(4, 0.02), (16, 0.1)])
def test_simulated_quantiles_match_batch_law(
    workload: Workload, size: int, window_s: float
) -> None:
    """P50, P95 and P99 are within 2 % for Poisson arrivals and squared variations of 6 and 10."""
    exact = exact_ms(workload.process, size, window_s)
    simulated = simulated_ms(workload, size, window_s, scaled(60_000), seed=1)
    assert pytest.approx(exact, rel=loosened(0.02)) == simulated


def test_printed_eq9_underestimates_p95() -> None:
    """The printed P95 of the published bursty requests is more than a fifth too low."""
    bursty = WORKLOADS[1]
    exact, eq9 = exact_ms(bursty.process, 2, 0.1), printed_ms(bursty, 2, 0.1)
    assert eq9[2] < 0.8 * exact[2]


@pytest.mark.parametrize("process", [Poisson(120.0), mmpp2((20, 120), (1.0, 1.0))])
@pytest.mark.parametrize("spare", [0, 1])
def test_estimated_instances_meet_objective_and_two_fewer_do_not(
    process: Markovian, spare: int
) -> None:
    """The estimated number of instances meets the objective, and two fewer do not."""
    objective_s, size, window_s = 0.3, 8, 0.08
    service = Service.fixed(seconds_by_size(size))
    crowd = LimitedInstances(process, BatchLaw(process, size, window_s), service)
    least = least_instances(crowd, objective_s, 0.01)
    late = _late(process, least + spare, size, window_s, objective_s)
    assert late <= 0.01
    assert _late(process, least - 2, size, window_s, objective_s) > 0.01


def _late(
    process: Markovian, instances: int, size: int, window_s: float, objective_s: float
) -> float:
    scenario = of(function(process, MODEL, slo_s=objective_s), horizon_s=scaled(500))
    policy = Constant(Constant.Params(instances, size, window_s))
    return float(run(scenario, policy, interval_s=100.0)["slo_miss_ratio"])


def _simulated(name: str, **settings: Any) -> dict[str, Any]:
    scenario = read_scenario(SCENARIO)
    policy = Guard(chosen_policy(name, scenario.policies))
    short = dataclasses.replace(scenario, horizon_s=300.0)
    return measured(Simulation(short, policy, Settings(**settings)).run())


@pytest.mark.slow
def test_the_scenario_meets_its_objectives() -> None:
    """With known arrival processes, no function misses more than its objective allows."""
    found = _simulated("batch", processes_known=True, interval_s=60.0)
    missed = {name: each["slo_miss_ratio"] for name, each in found["functions"].items()}
    assert {} == {name: share for name, share in missed.items() if share > 0.05}
