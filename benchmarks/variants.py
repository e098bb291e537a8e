"""INFaaS: how near greedy comes to the integer program, and what variants save over a day.

``python -m benchmarks variants`` draws 1000 tasks of 2 to 25 variants, some of which run already,
solves each in both ways and prints the distribution of the ratio of their costs: of what runs in
the end, with the loading of what has to be started. ``--simulate SECONDS`` adds a run of the
scenario of 175 variants: with variants, with replicas of the one variant that is the cheapest at
first, and with a fixed number of the cheapest variant that holds the most of the day.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaler.core.infaas.greedy import greedy
from scaler.core.infaas.program import program
from scaler.core.policy import Planning
from scaler.core.scenario import read_scenario
from scaler.plan_command import snapshot_of
from scaler.policies.infaas import Infaas
from simulator.engine import Simulation
from simulator.metrics import measured
from tests.scaler.infaas.drawn_tasks import drawn_task

if TYPE_CHECKING:
    from carpool.plan import Plan
    from scaler.core.scenario import Scenario
    from scaler.core.snapshot import Snapshot

__all__ = ["main"]

_SCENARIO = Path(__file__).resolve().parents[1] / "examples/scenarios/variants.yaml"
_SHARES = (0.5, 0.9, 0.99, 1.0)
_MS_PER_S = 1000.0


def main(argv: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks variants", description=__doc__)
    parser.add_argument("--tasks", type=int, default=1000, help="to be drawn (1000)")
    parser.add_argument("--simulate", type=float, metavar="SECONDS", help="of the scenario")
    flags = parser.parse_args(argv)
    for needs_most in (1, 3):
        print(_compared(flags.tasks, needs_most))
    if flags.simulate:
        scenario = dataclasses.replace(read_scenario(_SCENARIO), horizon_s=flags.simulate)
        _simulate(scenario)
    return 0


def _compared(tasks: int, needs_most: int) -> str:
    """Ratios of costs, and times, on tasks of up to so many needs."""
    draw = random.Random(1)
    ratios: list[float] = []
    times: dict[str, list[float]] = {"greedy": [], "program": []}
    for _ in range(tasks):
        task = drawn_task(draw, needs_most)
        there = sum(o.cost * n for o, n in zip(task.options, task.running, strict=True))
        costs = []
        for solve in (greedy, program):
            began = time.process_time()
            solution = solve(task)
            times[solve.__name__].append((time.process_time() - began) * _MS_PER_S)
            costs.append(there + task.change_cost(solution.counts))
        ratios.append(costs[0] / costs[1])
    ratios.sort()
    spread = ", ".join(f"P{share * 100:g} {_at(ratios, share):.4f}" for share in _SHARES)
    within = sum(ratio <= 1.1 for ratio in ratios) / tasks  # noqa: PLR2004  a tenth
    took = ", ".join(f"{name} {statistics.median(ms):.1f} ms" for name, ms in times.items())
    return (
        f"{tasks} tasks of up to {needs_most} needs: greedy costs {spread} times the program; "
        f"{within:.1%} within a tenth; {took} in the median"
    )


def _at(ordered: list[float], share: float) -> float:
    return ordered[int(share * (len(ordered) - 1))]


class _Static:
    """The same plans for ever: for the most of the day, of one variant each."""

    def __init__(self, scenario: Scenario) -> None:
        busiest = max(
            (snapshot_of(scenario, at) for at in range(0, int(scenario.horizon_s), 10)),
            key=lambda snapshot: sum(view.rate_rps for view in snapshot.functions),
        )
        most = {
            view.name: max(
                (
                    found
                    for at in range(0, int(scenario.horizon_s), 10)
                    for found in snapshot_of(scenario, at).functions
                    if found.name == view.name
                ),
                key=lambda found: found.rate_rps,
            )
            for view in busiest.functions
        }
        peak = dataclasses.replace(busiest, functions=tuple(most.values()))
        policy = Infaas(Infaas.Params(scaling="replicate"))
        self._plans: dict[str, Plan] = dict(policy.plan(peak).plans)

    def plan(self, snapshot: Snapshot) -> Planning:
        """What has been decided once."""
        del snapshot
        return Planning(self._plans)


def _simulate(scenario: Scenario) -> None:
    policies: dict[str, Any] = {
        "variants": Infaas(Infaas.Params()),
        "replicate": Infaas(Infaas.Params(scaling="replicate")),
        "static": _Static(scenario),
    }
    head = ("policy", "requests", "missed", "cost", "times", "p99 ms", "cold")
    print("".join(f"{name:>12}" for name in head))
    least = None
    for name, policy in policies.items():
        found = measured(Simulation(scenario, policy).run())
        least = least or found["cost"]
        row = (
            name,
            f"{found['requests']}",
            f"{found['slo_miss_ratio']:.2%}",
            f"{found['cost']:.4f}",
            f"{found['cost'] / least:.2f}",
            f"{found['latency_ms']['p99']:.0f}",
            f"{found['cold_start_ratio']:.2%}",
        )
        print("".join(f"{each:>12}" for each in row), flush=True)
