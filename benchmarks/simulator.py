"""Measure how many requests per second one core simulates: ``python -m benchmarks.simulator``.

Times are CPU time, and the best of several rounds counts, because other programs only make it
slower.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.arrivals.processes import Poisson, Trace
from carpool.latency.linear import Linear
from carpool.plan import InstanceClass, Plan, Route
from scaler.control.planning_result import PlanningResult
from scaler.planning.cost import Prices
from scaler.scenarios.scenario import App, Function, Scenario
from simulator.metrics import measured
from simulator.settings import Settings
from simulator.simulation import Simulation

if TYPE_CHECKING:
    from carpool.arrivals.processes import ArrivalProcess
    from carpool.scaling import FunctionLoad
    from scaler.planning.snapshot import Snapshot

__all__ = ["main"]

_DAY_S = 86400.0
_HOUR_DAYS = 1 / 24  # rates change every hour
_INTERVAL_S = 10.0  # of the week: as `carpool simulate --rate-level` has it
_CALM = 0.7  # of what the instances can take


@dataclass(frozen=True, slots=True)
class Case:
    """A load to simulate.

    Attributes:
        name: Description of the case.
        batch: Requests in a full batch.
        instances: Instances of each function.
        functions: Number of functions.
        load: Load as a share of the instances' capacity.
        requests: Total number of requests.
    """

    name: str
    batch: int
    instances: int
    functions: int = 1
    load: float = _CALM
    requests: int = 400_000


CASES = (
    Case("batches of 8", 8, 10),
    Case("batches of 32", 32, 10),
    Case("no batches", 1, 10),
    Case("eight functions", 8, 5, functions=8),
    Case("1000 instances", 8, 1000),
    Case("overload", 8, 10, load=1.3),
)


class _Following:
    """Policy that holds the instances for the measured rate and a tenth more."""

    def __init__(self, batch: int, exec_s: float, least: int = 1, *, fixed: bool = False) -> None:
        self._class = InstanceClass("a", 1.0, batch, least, exec_s=exec_s, rate_high=batch / exec_s)
        self._least = least
        self._fixed = fixed

    def plan(self, snapshot: Snapshot) -> PlanningResult:
        """Return a plan with one class and one route."""
        return PlanningResult({load.name: self._of(load) for load in snapshot.functions})

    def _of(self, load: FunctionLoad) -> Plan:
        instance_class, before = self._class, load.plan
        wanted = self._least
        if not self._fixed:
            wanted = max(wanted, math.ceil(1.1 * load.rate_rps / (instance_class.rate_high or 1.0)))
        if before and before.classes[0].replicas == wanted:
            return before
        only = InstanceClass(
            "a", 1.0, instance_class.batch_size, wanted, exec_s=instance_class.exec_s
        )
        route = Route("*", {"a": 1.0}, instance_class.exec_s or 0.0)
        return Plan(load.name, before.version + 1 if before else 1, "following", (only,), (route,))


def _scenario(processes: list[ArrivalProcess], model: Linear, horizon_s: float) -> Scenario:
    functions = tuple(
        Function(f"f{number}", "m", model, 1.0, 0.99, 64, (App("all", 1.0, process),))
        for number, process in enumerate(processes)
    )
    return Scenario(Path("benchmark"), (), Prices(), {"m": model}, functions, {}, horizon_s)


def speed(case: Case) -> float:
    """Return the simulated requests per CPU second."""
    model = Linear(0.05, 0.005)
    exec_s = 0.05 + 0.005 * case.batch
    rate_rps = case.load * case.instances * case.batch / exec_s
    horizon_s = case.requests / rate_rps / case.functions
    scenario = _scenario([Poisson(rate_rps)] * case.functions, model, horizon_s)
    policy = _Following(case.batch, exec_s, case.instances, fixed=True)
    began = time.process_time()
    outcome = Simulation(scenario, policy).run()
    return sum(run.requests for run in outcome.functions) / (time.process_time() - began)


def week(days: float, *, rate_level: bool) -> tuple[float, dict[str, float], int]:
    """Simulate days at 50 requests per second; return CPU time, metrics and simulated requests."""
    hours = [50 * (1 + 0.8 * math.sin(2 * math.pi * hour / 24)) for hour in range(int(24 * days))]
    trace = Trace(tuple(3600.0 * n for n in range(len(hours))), tuple(hours), 3600.0 * len(hours))
    scenario = _scenario([trace], Linear(0.05, 0.02, load_s=2.0), days * _DAY_S)
    policy = _Following(4, 0.13)
    began = time.process_time()
    outcome = Simulation(
        scenario, policy, Settings(interval_s=_INTERVAL_S, rate_level=rate_level)
    ).run()
    seconds = time.process_time() - began
    result = measured(outcome)
    names = ("requests", "mean_batch", "cpu_core_s", "rps_per_resource", "idle_core_s")
    metrics = {name: float(result[name]) for name in names}
    metrics |= {name: result["latency_ms"][name] for name in ("mean", "p50", "p95", "p99")}
    metrics["slo_miss_ratio"] = result["slo_miss_ratio"]
    return seconds, metrics, outcome.simulated


def _days(text: str) -> float:
    days = float(text)
    if not _HOUR_DAYS <= days < math.inf:
        message = f"{text}: expected days, at least an hour ({_HOUR_DAYS:.2g})"
        raise argparse.ArgumentTypeError(message)
    return days


def main(argv: list[str]) -> int:
    """Measure and print text, or JSON with ``--json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulator")
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many counts (3)")
    parser.add_argument("--days", type=_days, default=7.0, help="for the rate-level mode (7)")
    parser.add_argument("--compare", type=_days, default=0.5, help="days run in both modes (0.5)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    flags = parser.parse_args(argv)
    speeds = {case.name: max(speed(case) for _ in range(flags.rounds)) for case in CASES}
    seconds, metrics, simulated = week(flags.days, rate_level=True)
    _, whole, _ = week(flags.compare, rate_level=False)
    _, quick, _ = week(flags.compare, rate_level=True)
    apart = {name: quick[name] / whole[name] - 1 for name in whole if whole[name]}
    if flags.json:
        document = {
            "requests_per_cpu_s": speeds,
            "rate_level": {"days": flags.days, "cpu_s": seconds, "simulated": simulated},
            "rate_level_over_request_level": apart,
        }
        print(json.dumps(document, indent=2))
        return 0
    for name, rate in speeds.items():
        print(f"{name:<16} {rate:>9,.0f} requests a second")
    print(
        f"rate level: {flags.days:g} days, {metrics['requests']:,.0f} requests in {seconds:.1f} s, "
        f"{simulated:,} of them simulated"
    )
    print(f"against the request level, {flags.compare:g} days:")
    for name, off in apart.items():
        print(f"{name:<16} {100 * off:>+8.2f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
