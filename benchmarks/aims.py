"""Compare the costs of `infless` by ``aim``: ``python -m benchmarks aims``.

One function on unlimited servers, under Poisson arrivals and bursts and under both billing rules,
with two kinds of example tables (models that are cheapest on GPUs, and small ones) and two linear
models.
"""

from __future__ import annotations

import argparse
import sys
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from carpool.arrivals.markov import mmpp2
from carpool.arrivals.processes import Poisson
from carpool.latency.linear import Linear
from carpool.latency.table import read_table
from scaler.control.guard import Guard
from scaler.planning.cost import Prices
from scaler.policies.infless.policy import Infless
from scaler.scenarios.scenario import App, Function, Scenario
from simulator.metrics import measured
from simulator.settings import Settings
from simulator.simulation import Simulation

if TYPE_CHECKING:
    from carpool.arrivals.map_counts import Markovian
    from carpool.latency import LatencyModel

__all__ = ["main"]

_SCENARIOS = Path(__file__).parents[1] / "examples" / "scenarios"
_TABLES = {"resnet-50": 0.2, "mobilenet": 0.2, "textcnn-69": 0.05, "dssm": 0.05}
_LINES = {"tiny": (Linear(0.004, 0.001, cpu=0.5), 0.05), "line": (Linear(0.02, 0.005), 0.15)}
_RATES = (5.0, 40.0, 200.0)
_BILLING = ("reserved", "pay-per-use")
_ARRIVALS = ("Poisson", "bursts")
_NOISE = 1.03


def main(argv: list[str]) -> int:
    """Simulate and print; return 1 if aiming at cost gives the higher bill in any case."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks aims", description=__doc__)
    parser.add_argument("--horizon", type=float, default=60.0, metavar="SECONDS", help="(60)")
    horizon_s = parser.parse_args(argv).horizon
    models: dict[str, tuple[LatencyModel, float]] = dict(_LINES)
    for name, slo_s in _TABLES.items():
        models[name] = read_table(_SCENARIOS / f"{name}.csv", load_s=2.0), slo_s
    print("| model | billing | requests/s | arrivals | cost beside `resources` | misses | batch |")
    print("|---|---|---:|---|---:|---:|---:|")
    worst = 0.0
    for name, billing, rate, arrivals in product(models, _BILLING, _RATES, _ARRIVALS):
        process: Markovian = Poisson(rate)
        if arrivals == "bursts":
            process = mmpp2((0.2 * rate, 1.8 * rate), (0.05, 0.05))
        cost, resources = (
            _run(*models[name], process, billing, aim, horizon_s) for aim in ("cost", "resources")
        )
        ratio = cost["cost"] / resources["cost"]
        worst = max(worst, ratio)
        missed, batch = (
            f"{pattern.format(cost[key])}, {pattern.format(resources[key])}"
            for key, pattern in (("slo_miss_ratio", "{:.2%}"), ("mean_batch", "{:.2f}"))
        )
        case = f"| {name} | {billing} | {rate:g} | {arrivals} "
        print(f"{case}| {ratio:.2f} | {missed} | {batch} |", flush=True)
    return int(worst > _NOISE)


def _run(
    model: LatencyModel,
    slo_s: float,
    process: Markovian,
    billing: str,
    aim: Literal["cost", "resources"],
    horizon_s: float,
) -> dict[str, Any]:
    """Return the metrics of one function."""
    prices = Prices(billing, cpu_core_s=9e-5, gpu_percent_s=7e-6)
    function = Function("f", "m", model, slo_s, 0.99, 32, (App("all", slo_s, process),))
    scenario = Scenario(
        Path("benchmark"), (), prices, {"m": model}, (function,), {}, horizon_s, seed=3
    )
    guard = Guard(Infless(Infless.Params(aim=aim)))
    return measured(Simulation(scenario, guard, Settings(interval_s=1.0)).run())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
