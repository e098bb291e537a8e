"""Compare resources and cost of `infless` and `openfaas`: ``python -m benchmarks shares``.

OSVT under its three traces, simulated with defaults, as a table for docs/scaling.md. OpenFaaS is
simulated twice: with the two cores and ten percent of a GPU of INFless's comparison, and without
the GPU (``cores``). The unit of resources is INFless's: a percent of a GPU, or 142/64 of a core.
``GPU`` is the part of a policy's resources that are shares of GPUs, ``idle`` the part of its
instances' time without an execution.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from carpool.scaling import resource_units
from scaler.control.guard import Guard
from scaler.policy_choice import chosen_policy
from scaler.scenarios.scenario_file import read_scenario
from simulator.metrics import measured
from simulator.settings import Settings
from simulator.simulation import Simulation

__all__ = ["main"]

_SCENARIOS = Path(__file__).parents[1] / "examples" / "scenarios"
_TRACES = {"periodic": "osvt", "bursty": "osvt-bursty", "sporadic": "osvt-sporadic"}
_POLICIES = ("infless", "resources", "published", "openfaas", "cores")
_HEADS = (
    *("trace", "policy", "requests per resource", "beside `cores`", "GPU", "idle", "misses"),
    *("cost per 1000", "beside `cores`", "mean batch", "p99 ms", "cold starts"),
)


def main(argv: list[str]) -> int:
    """Simulate and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks shares", description=__doc__)
    add = parser.add_argument
    add("--horizon", type=float, default=1200.0, metavar="SECONDS", help="of each run (1200)")
    add("--trace", action="append", choices=list(_TRACES), help="(all)")
    flags = parser.parse_args(argv)
    print(f"| {' | '.join(_HEADS)} |")
    print("|---|---|" + "---:|" * (len(_HEADS) - 2))
    for trace in flags.trace or _TRACES:
        path = _SCENARIOS / f"{_TRACES[trace]}.yaml"
        results = {policy: _run(path, policy, flags.horizon) for policy in _POLICIES}
        if not results["cores"]["done"]:
            print(f"{trace}: no request within {flags.horizon:g} s", file=sys.stderr)
            continue
        for policy, each in results.items():
            print(_line(trace, policy, each, results), flush=True)
    return 0


def _run(path: Path, policy: str, horizon_s: float) -> dict[str, Any]:
    """Return the metrics of a scenario under a policy."""
    scenario = replace(read_scenario(path), horizon_s=horizon_s)
    guard = Guard(chosen_policy(policy, scenario.policies))
    return measured(Simulation(scenario, guard, Settings()).run())


def _line(trace: str, policy: str, own: dict[str, Any], results: dict[str, dict[str, Any]]) -> str:
    with_gpu, without = results["openfaas"], results["cores"]
    units = resource_units(own["cpu_core_s"], own["gpu_percent_s"])
    cells = (
        trace,
        f"`{policy}`",
        f"{own['rps_per_resource'] / with_gpu['rps_per_resource']:.1f}x",
        f"{own['rps_per_resource'] / without['rps_per_resource']:.2f}x",
        f"{100 * own['gpu_percent_s'] / units:.0f} %",
        f"{100 * own['idle_core_s'] / own['cpu_core_s']:.0f} %",
        f"{100 * own['slo_miss_ratio']:.2f} %",
        f"{own['cost_per_1k']:.4f}",
        f"{own['cost_per_1k'] / without['cost_per_1k']:.2f}x",
        f"{own['mean_batch']:.2f}",
        f"{own['latency_ms']['p99']:.0f}",
        f"{100 * own['cold_start_ratio']:.2f} %",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
