"""Simulation and reality agree: one trace, in the simulator alone and with pods as instances."""

from __future__ import annotations

import math
import os
import statistics
from time import perf_counter as now
from typing import TYPE_CHECKING

import pytest

from scaler.command_policy import ReportingGuard
from scaler.control.action import Action
from scaler.openfaas_client import GatewayClient
from scaler.policy_choice import chosen_policy
from scaler.scenarios.scenario_file import read_scenario
from simulator.settings import Settings
from simulator.simulation import Simulation
from tests.cluster.control_plane import PACKING
from tests.cluster.fake_nodes import SIZE
from tests.cluster.paced import PacedSimulation
from tests.cluster.provider_process import provider_process
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from scaler.scenarios.scenario import Scenario
    from simulator.results import ScenarioResult
    from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.timing
SHARE = float(os.environ.get("cluster_share", "0.1"))
HORIZON_S = 60 if SHARE < 1 else 300
NODES, CORES, TURNS = 20, 8, 5
POLICY, IMAGE = "infless", "fake:1"
TOLERANCE = 0.05
FUNCTIONS = {"day": 0.0, "night": math.pi}  # where each begins in the wave of its load
SCENARIO = """\
cluster: {{nodes: [{{name: fake, count: {nodes}, cpus: {cpus}}}]}}
models: {{toy: {{linear: {{base_ms: 100, per_item_ms: 25, cpu: 2}}, load_s: {load_s}}}}}
functions:
{functions}
horizon_s: {horizon_s}
seed: 1
"""
FUNCTION = """\
  - name: {name}
    model: toy
    slo_ms: 800
    max_batch: 8
    apps: [{{name: all, arrivals: {{trace: {name}.csv}}}}]
"""


def scenario(folder: Path, load_s: float) -> Scenario:
    """Return a scenario of two functions whose loads rise and fall alternately."""
    for name, phase in FUNCTIONS.items():
        lines = ["start_s,requests_per_minute"]
        for start_s in range(0, HORIZON_S, 5):
            rate_rps = 300 + 200 * math.sin(phase + 2 * math.pi * start_s / HORIZON_S)
            lines.append(f"{start_s},{60 * rate_rps:.0f}")
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    path = folder / "scenario.yaml"
    functions = "".join(FUNCTION.format(name=name) for name in FUNCTIONS)
    fields = {"nodes": NODES, "cpus": CORES, "load_s": load_s, "horizon_s": HORIZON_S}
    path.write_text(SCENARIO.format(functions=functions, **fields))
    return read_scenario(path)


def guard() -> ReportingGuard:
    """Return the guarded policy."""
    return ReportingGuard(POLICY, chosen_policy(POLICY, {}))


def start_s(client: GatewayClient) -> float:
    """Return the median seconds from the call to scale until a pod is shown as ready."""
    client.carry_out(Action("deploy", "", "one", document={"service": "one", "image": IMAGE}))

    def shown(count: int) -> float:
        began = now()
        wait_until(lambda: client.functions()["one"].available == count, what=f"{count} pods")
        return now() - began

    took = []
    for _ in range(TURNS):
        client.carry_out(Action("scale", "", "one", replicas=0))
        shown(0)
        client.carry_out(Action("scale", "", "one", replicas=1))
        took.append(shown(1))
    client.carry_out(Action("delete", "", "one"))
    wait_until(lambda: "one" not in client.functions(), what="its end")
    return statistics.median(took)


class Density:
    """Recorder of the share of cores that pods request on the nodes in use."""

    def __init__(self, cluster: Cluster, space: str) -> None:
        self._api = cluster.api
        self._path = f"/api/v1/namespaces/{space}/pods"
        self.shares: list[float] = []

    def look(self, _now_s: float) -> None:
        """Record the current share."""
        asked: dict[str, float] = {}
        for pod in self._api.get(self._path)["items"]:
            (container,) = pod["spec"]["containers"]
            cores = container["resources"].get("requests", {}).get("cpu", "0")
            if (node := pod["spec"].get("nodeName")) and float(cores):
                asked[node] = asked.get(node, 0.0) + float(cores)
        if asked:
            self.shares.append(sum(asked.values()) / (len(asked) * CORES))


def by_time(result: ScenarioResult) -> Mapping[float, int]:
    """Return the number of ready instances by time."""
    found: dict[float, int] = {}
    for function in result.functions:
        for moment in function.moments:
            found[moment.at_s] = found.get(moment.at_s, 0) + moment.ready
    return found


def test_instances_over_time_are_those_of_the_simulation(
    control_plane: Cluster, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    """For the same policy and requests, instances and density of nodes agree within 5 %."""
    control_plane.fake_nodes(NODES, {**SIZE, "cpu": str(CORES)})
    space = control_plane.namespace()
    with provider_process(control_plane, space, "--scheduler", PACKING) as provider:
        client = GatewayClient(provider.url)
        load_s = start_s(client)
        given, settings = scenario(tmp_path, load_s), Settings(cold=True)
        simulated = Simulation(given, guard(), settings).run()
        density = Density(control_plane, space)
        paced = PacedSimulation(given, guard(), settings, client, IMAGE, density.look)
        paced.run()
    expected = by_time(simulated)
    got = {at: paced.ready[max(t for t in paced.ready if t <= at)] for at in expected}
    mean = statistics.mean(expected.values())
    apart = statistics.mean(abs(got[at] - expected[at]) for at in expected) / mean
    packed = 1 - statistics.mean(filter(None, simulated.fragmentation))
    ran = statistics.mean(got.values())
    figure(
        f"{len(FUNCTIONS)} functions under {POLICY} for {HORIZON_S} s, a pod ready after "
        f"{load_s:.2f} s: instances {mean:.1f} simulated, {ran:.1f} on kwok, "
        f"{apart:.1%} apart on average; density {packed:.3f} simulated, "
        f"{statistics.mean(density.shares):.3f} on kwok; at most {paced.late_s:.2f} s late"
    )
    assert mean > NODES
    assert apart <= TOLERANCE
    assert packed == pytest.approx(statistics.mean(density.shares), rel=TOLERANCE)
