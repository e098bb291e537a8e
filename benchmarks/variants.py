"""Compare INFaaS's greedy search with the integer program, and variants with replicas over a day.

``python -m benchmarks variants`` draws 1000 tasks of 2 to 25 variants, some of which run already,
solves each in both ways and prints the distribution of the ratio of their costs: those of all
instances that run in the end, and of loading the new ones. ``--simulate SECONDS`` adds the scenario
of 175 variants, simulated: with variants, with replicas of the one variant that is cheapest at
first, and with the best static choice (`benchmarks.static_variants`); then one application at low
load compared with static variants on a GPU, and the highest load that two servers can take.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import random
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.static_variants import Pool, Static, best_static
from benchmarks.variant_bound import bounds
from benchmarks.variants_live import compared
from carpool.arrivals.processes import Poisson
from scaler.control.guard import Guard
from scaler.plan_command import snapshot_of
from scaler.planning.placement import Node
from scaler.policies.infaas.greedy import greedy
from scaler.policies.infaas.offers import Offers
from scaler.policies.infaas.policy import Infaas
from scaler.policies.infaas.program import program
from scaler.scenarios.scenario_file import read_scenario
from simulator.metrics import measured
from simulator.simulation import Simulation
from tests.scaler.infaas.drawn_tasks import drawn_task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scaler.scenarios.scenario import Scenario

__all__ = ["main"]

_SCENARIO = Path(__file__).resolve().parents[1] / "examples/scenarios/variants.yaml"
_SHARES = (0.5, 0.9, 0.95, 0.99, 0.999, 1.0)
_BARS = (1.0, 1.0001, 1.01, 1.02, 1.05, 1.1, math.inf)  # ratios up to these
_MS_PER_S = 1000.0
_PERCENTILE = 0.99  # of the scenario
_MISSED = 0.04  # of the paper
_GPU_SHARES = (100.0, 50.0, 25.0, 10.0)
_BOUND_MISSED = (0.01, _MISSED)


def main(argv: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks variants", description=__doc__)
    parser.add_argument("--tasks", type=int, default=1000, help="to be drawn (1000)")
    parser.add_argument("--simulate", type=float, metavar="SECONDS", help="of the scenario")
    parser.add_argument("--bound", action="store_true", help="what no policy can be cheaper than")
    parser.add_argument("--live", action="store_true", help="one application on a running stack")
    flags = parser.parse_args(argv)
    for needs_most in (1, 3) if flags.tasks else ():
        print(_compared(flags.tasks, needs_most))
    if flags.bound:
        _bound(read_scenario(_SCENARIO))
    if flags.simulate:
        scenario = dataclasses.replace(read_scenario(_SCENARIO), horizon_s=flags.simulate)
        _low(scenario)
        _throughput(scenario, _MISSED)
        for most_missed in (1 - _PERCENTILE, _MISSED):
            _simulate(scenario, most_missed)
    if flags.live:
        compared(_MISSED)
    return 0


def _compared(tasks: int, needs_most: int) -> str:
    """Return ratios of costs, and times, for tasks of up to ``needs_most`` needs."""
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
    bars = ", ".join(
        f"{sum(low < ratio <= high for ratio in ratios)} up to {high:g}"
        for low, high in zip((0.0, *_BARS), _BARS, strict=False)
    )
    within = sum(ratio <= 1.1 for ratio in ratios) / tasks  # noqa: PLR2004  a tenth
    took = ", ".join(f"{name} {statistics.median(ms):.1f} ms" for name, ms in times.items())
    return (
        f"{tasks} tasks of up to {needs_most} needs: greedy costs {spread} times the program; "
        f"{within:.1%} within a tenth ({bars}); {took} in the median"
    )


def _bound(scenario: Scenario) -> None:
    """Print the bounds on the day's cost."""
    found = bounds(scenario, _BOUND_MISSED)
    print(f"at the least, instances in parts: {found.any_part:.4f}")
    for share, cost in found.whole.items():
        print(f"at the least, whole instances, {share:.0%} missed: {cost:.4f}")
    for share, cost in found.random.items():
        print(f"requests at random, by the policy's rule, {share:.0%} missed: {cost:.4f}")


def _at(ordered: list[float], share: float) -> float:
    return ordered[int(share * (len(ordered) - 1))]


def _simulate(scenario: Scenario, most_missed: float) -> None:
    """Simulate the day with variants and with the alternatives."""
    print(f"best static choice, searched with at most {most_missed:.0%} missed:", flush=True)
    pools = best_static(scenario, most_missed)
    for name, of_function in pools.items():
        said = " and ".join(
            f"{pool.instances} x {pool.offer.size.name} for {', '.join(pool.apps)}"
            for pool in of_function
        )
        print(f"  {name}: {said}")
    _table(
        scenario,
        {
            "variants": Infaas(Infaas.Params()),
            "replicate": Infaas(Infaas.Params(scaling="replicate")),
            "static": Static(pools),
        },
    )


def _table(scenario: Scenario, policies: Mapping[str, Any]) -> None:
    head = ("policy", "requests", "missed", "cost", "times", "p99 ms", "cold")
    print("".join(f"{name:>12}" for name in head))
    least = None
    for name, policy in policies.items():
        metrics = measured(Simulation(scenario, Guard(policy)).run())
        least = least or metrics["cost"]
        row = (
            name,
            f"{metrics['requests']}",
            f"{metrics['slo_miss_ratio']:.2%}",
            f"{metrics['cost']:.4f}",
            f"{metrics['cost'] / least:.2f}",
            f"{metrics['latency_ms']['p99']:.0f}",
            f"{metrics['cold_start_ratio']:.2%}",
        )
        print("".join(f"{each:>12}" for each in row), flush=True)


def _low(scenario: Scenario) -> None:
    """Simulate two requests per second, beside a static instance of each variant on a GPU."""
    calm = _at_rate(scenario, 2.0)
    (function,) = calm.functions
    load = snapshot_of(calm).functions[0]
    policies: dict[str, Any] = {"variants": Infaas(Infaas.Params())}
    accurate = [o for o in Offers().of(load) if all(o.suits(app) for app in load.apps)]
    for offer in accurate:
        name = offer.size.variant
        if offer.size.gpu and name not in policies:
            names = tuple(app.name for app in load.apps)
            policies[name] = Static({function.name: (Pool(names, offer, 1, 0.0),)})
    print(f"low load, {function.name}, 2 requests/s:")
    _table(calm, policies)
    on_gpu = [offer.size.resources for offer in accurate if offer.size.gpu]
    for share in _GPU_SHARES:
        each = [calm.prices.per_second(size._replace(gpu=share)) for size in on_gpu]
        print(f"one instance with {share:g} % of a GPU: {min(each) * calm.horizon_s:.4f}")


def _throughput(scenario: Scenario, most_missed: float) -> None:
    """Find the highest rate of two servers, with variants and with replicas of one variant."""
    small = dataclasses.replace(scenario, nodes=(Node("cores", 24.0, 0), Node("gpu", 8.0, 1)))
    print(f"highest rate on 32 cores and a GPU with at most {most_missed:.0%} missed:", flush=True)
    rates_rps = {}
    for name in ("variants", "replicate"):
        low, high = 500.0, 16_000.0
        while high > 1.05 * low:
            rate = math.sqrt(low * high)
            tried = _at_rate(small, rate, horizon_s=30.0)
            policy = Infaas(Infaas.Params(scaling=name))
            missed = measured(Simulation(tried, Guard(policy)).run())["slo_miss_ratio"]
            low, high = (rate, high) if missed <= most_missed else (low, rate)
        rates_rps[name] = low
        print(f"  {name}: {low:.0f} requests/s", flush=True)
    print(f"  {rates_rps['variants'] / rates_rps['replicate']:.2f} times as much with variants")


def _at_rate(scenario: Scenario, rate_rps: float, horizon_s: float = 600.0) -> Scenario:
    """Return the scenario's first function alone, with ``rate_rps`` over all applications."""
    function = scenario.functions[0]
    apps = tuple(
        dataclasses.replace(app, arrivals=Poisson(rate_rps / len(function.apps)))
        for app in function.apps
    )
    alone = dataclasses.replace(function, apps=apps)
    return dataclasses.replace(scenario, functions=(alone,), horizon_s=horizon_s)
