"""Time planning rounds of a policy in a separate process: ``... POLICY FUNCTIONS ROUNDS``.

The functions run six models in turn, measured on cores and shares of GPUs. Each function has two
applications with its own objectives and rates, so that no two functions are alike. All running
instances are placed on two thousand servers. The first round knows nothing, and nothing runs. In
the steady rounds that follow, the plans of the round before have been carried out. Rates are
realistic: those of a load that drifts by up to a percent from round to round, counted over ten
seconds of Poisson arrivals.

It imports nothing of the benchmarks, so that `planning` can run it on another tree.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from carpool import plugins
from carpool.latency import Resources
from carpool.latency.table import read_table
from carpool.scaling import Application, FunctionLoad, Instances
from scaler.control.guard import Guard
from scaler.planning.cost import Prices
from scaler.planning.placement import Cluster, Node
from scaler.planning.snapshot import Snapshot

if TYPE_CHECKING:
    from carpool.plan import Plan

_SCENARIOS = Path(__file__).parents[1] / "examples" / "scenarios"
_SLOS_S = {
    "ssd": 0.2,
    "mobilenet": 0.2,
    "resnet-50": 0.2,
    "textcnn-69": 0.05,
    "lstm-2365": 0.05,
    "dssm": 0.05,
}
_INSTANCES = 4  # about so many a function
_SERVERS = 2000
_DRIFT = 0.01  # of a load from one round to the next
_WINDOW_S = 10.0  # in which requests are counted
_ROUND_S = 0.5


def main(policy: str, count: int, rounds: int) -> None:
    """Print the CPU seconds of each round as JSON, starting with the first round."""
    policy_class = plugins.resolve("scale", policy)
    guard = Guard(policy_class(policy_class.Params()))
    draw = np.random.default_rng(1)
    loads = _loads(count)
    plans: dict[str, Plan] = {}
    seconds, failures = [], 0
    for number in range(rounds + 1):
        loads = [_drifted(load, draw) for load in loads]
        shown = tuple(_now(load, plans.get(load.name), draw) for load in loads)
        cluster = _cluster(plans)
        snapshot = Snapshot(number * _ROUND_S, shown, cluster, Prices(), beginning=not number)
        gc.collect()
        began_s = time.process_time()
        result = guard.plan(snapshot)
        seconds.append(time.process_time() - began_s)
        plans |= result.plans
        failures += len(result.failures)
    print(json.dumps({"cpu_s": seconds, "planned": len(plans), "failures": failures}))


def _loads(count: int) -> list[FunctionLoad]:
    models = {name: read_table(_SCENARIOS / f"{name}.csv", load_s=2.0) for name in _SLOS_S}
    draw = random.Random(2)
    loads = []
    for number in range(count):
        name = list(models)[number % len(models)]
        slo_s = _SLOS_S[name] * (1 + number / 1e5)
        rate_rps = _INSTANCES / slo_s * draw.uniform(2.0, 8.0)
        apps = (
            Application("web", slo_s, rate_rps),
            Application("report", 2 * slo_s, rate_rps / 2),
        )
        loads.append(FunctionLoad(f"f{number}", models[name], slo_s, 0.99, 32, apps))
    return loads


def _drifted(load: FunctionLoad, draw: np.random.Generator) -> FunctionLoad:
    """Return the function one round later, with slightly different rates for all applications."""
    factor = float(draw.uniform(1 - _DRIFT, 1 + _DRIFT))
    return replace(load, apps=tuple(replace(a, rate_rps=a.rate_rps * factor) for a in load.apps))


def _now(load: FunctionLoad, plan: Plan | None, draw: np.random.Generator) -> FunctionLoad:
    """Return the function with the rates counted now, and its plan fully carried out."""
    apps = tuple(
        replace(app, rate_rps=int(draw.poisson(app.rate_rps * _WINDOW_S)) / _WINDOW_S)
        for app in load.apps
    )
    ready = {each.name: Instances(each.replicas) for each in plan.classes} if plan else {}
    return FunctionLoad(
        load.name, load.model, load.slo_s, load.percentile, load.max_batch, apps, plan, ready
    )


def _cluster(plans: dict[str, Plan]) -> Cluster:
    """Return the servers with all planned instances placed."""
    cluster = Cluster([Node(f"n{number}", 32, 2) for number in range(_SERVERS)])
    for plan in plans.values():
        for each in plan.classes:
            cluster.place_up_to(Resources(each.cpu, each.gpu), each.replicas)
    return cluster


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
