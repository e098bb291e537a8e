"""INFaaS on the running stack and in the simulator, with the same requests.

One application of the scenario of 175 variants runs with a trace that is low, high and low again,
under variants, replicas and the best static choice. Stand-ins take as long as the variants would;
everything else is real: provider, sidecars, scaler, starting processes. Variants on a GPU are left
out, as a provider without a GPU refuses them.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from benchmarks.static_variants import best_static, described
from faas_stack.compare.command import live
from scaler.control.guard import Guard
from scaler.control.stabilization import StabilizationLimits
from scaler.policy_choice import chosen_policy
from scaler.scenarios.scenario_file import read_scenario
from simulator.metrics import measured
from simulator.simulation import Simulation

if TYPE_CHECKING:
    from scaler.scenarios.scenario import Scenario

__all__ = ["compared"]

_FOLDER = Path(__file__).resolve().parents[1] / "examples/scenarios"
_RATES = ((0.0, 2.0), (30.0, 60.0), (60.0, 2.0))  # from when on, requests a second
_HORIZON_S = 100.0
_HOLD_S = 5.0
_POLICIES = ("variants", "replicate", "static")


def compared(most_missed: float) -> None:
    """Run all policies, and print a line for each."""
    with tempfile.TemporaryDirectory(prefix="carpool-variants-") as folder:
        scenario = _scenario(Path(folder), most_missed)
        outcomes = live(scenario, _POLICIES, None, {}, ["--hold", f"{_HOLD_S:g}s"])
        head = ("policy", "where", "requests", "missed", "cost", "times", "p99 ms")
        print("".join(f"{name:>12}" for name in head))
        least: dict[str, float] = {}
        for name in _POLICIES:
            policy = Guard(
                chosen_policy(name, scenario.policies), StabilizationLimits(window_s=_HOLD_S)
            )
            simulated = Simulation(scenario, policy).run()
            for where, outcome in (("live", outcomes[name]), ("simulated", simulated)):
                metrics = measured(outcome)
                cost = least.setdefault(where, metrics["cost"])
                row = (
                    name,
                    where,
                    f"{metrics['requests']}",
                    f"{metrics['slo_miss_ratio']:.2%}",
                    f"{metrics['cost']:.5f}",
                    f"{metrics['cost'] / cost:.2f}",
                    f"{metrics['latency_ms']['p99']:.0f}",
                )
                print("".join(f"{each:>12}" for each in row), flush=True)


def _scenario(folder: Path, most_missed: float) -> Scenario:
    """Return the scenario with its best static choice as one of its policies."""
    document = yaml.safe_load((_FOLDER / "variants.yaml").read_text(encoding="utf-8"))
    lines = [f"{start_s:g},{60 * rate:g}" for start_s, rate in _RATES]
    trace = "\n".join(["start_s,requests_per_minute", *lines]) + "\n"
    (folder / "trace.csv").write_text(trace, encoding="utf-8")
    function = document["functions"][0]
    list_file = document["models"][function["model"]]["variants"]
    listed = json.loads((_FOLDER / list_file).read_text(encoding="utf-8"))
    listed["variants"] = [each for each in listed["variants"] if not each["gpu"]]
    (folder / "variants.json").write_text(json.dumps(listed), encoding="utf-8")
    for app in function["apps"]:
        app["arrivals"] = {"trace": "trace.csv"}
    quick = {"calm_s": 5.0, "smoothing_s": 2.0}
    document |= {
        "models": {function["model"]: {"variants": "variants.json"}},
        "functions": [function],
        "horizon_s": _HORIZON_S,
        "policies": {
            "variants": {"policy": "infaas", **quick},
            "replicate": {"policy": "infaas", "scaling": "replicate", **quick},
        },
    }
    path = folder / "scenario.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")
    pools = best_static(read_scenario(path), most_missed)
    static = {"policy": "benchmarks.static_variants:Standing", "pools": described(pools)}
    document["policies"]["static"] = static
    path.write_text(json.dumps(document), encoding="utf-8")
    print(f"best static choice: {static['pools']}")
    return dataclasses.replace(read_scenario(path), path=path)
