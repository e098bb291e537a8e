"""A provider with many functions, on nodes simulated by kwok, stays correct and small.

``cluster_share=1`` is the full size: a thousand nodes, a hundred functions of three classes, ten
thousand pods.
"""

from __future__ import annotations

import os
import statistics
import threading
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter as now
from typing import TYPE_CHECKING, Any

import pytest
import requests

from scaler.control.action import Action, ProviderError
from scaler.openfaas_client import CALLS, GatewayClient
from tests.cluster.chart import Installed
from tests.cluster.provider_process import provider_process
from tests.cluster.provider_view import of_cluster, of_provider
from tests.cluster.watch_lag import WatchLag
from tests.cluster.writes import Writes
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.cluster.cluster import Cluster
    from tests.cluster.provider_process import ProviderProcess

SHARE = float(os.environ.get("cluster_share", "0.1"))
NODES, FUNCTIONS = int(1000 * SHARE), int(100 * SHARE)
CLASSES = ("b1-c1", "b4-c1", "b8-c2")
NAMES = [f"fn-{number:02}--{kind}" for number in range(FUNCTIONS) for kind in CLASSES]
REPLICAS = 33
PODS = len(NAMES) * REPLICAS
TURNS = 5
IDLE_S = 10.0
ALL_S = 900 * max(1.0, SHARE)
MOST_MIB = 300
MOST_IDLE = 0.2  # of a core
PLAN_S = 1.0


class Functions:
    """The functions of a provider, as seen by a scaler.

    Args:
        url: URL of the provider.

    Attributes:
        repeated: number of calls of /scale that were refused at first.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self.repeated = 0
        self._client = GatewayClient(url)

    def deploy(self, names: Sequence[str]) -> float:
        """Deploy functions, and return the duration of the calls in seconds."""
        return self._all([Action("deploy", "", name, document=document(name)) for name in names])

    def scale(self, names: Sequence[str], replicas: int) -> float:
        """Scale functions as a plan would, and return the duration of the calls in seconds."""
        return self._all([Action("scale", "", name, replicas=replicas) for name in names])

    def wait(self, names: Sequence[str], replicas: int) -> float:
        """Wait until the provider shows ``replicas`` ready for each, and return the seconds."""
        began, pause = now(), threading.Event()

        def seen() -> bool:
            pause.wait(0.5)
            found = requests.get(f"{self._url}/system/functions", timeout=HANG_S).json()
            available = {each["name"]: each["availableReplicas"] for each in found}
            return all(available.get(name) == replicas for name in names)

        wait_until(seen, ALL_S, what=f"{replicas} replicas of each")
        return now() - began

    def _all(self, actions: Sequence[Action]) -> float:
        """Carry out all actions with the concurrency of a scaler, and return the seconds."""
        began = now()
        with ThreadPoolExecutor(CALLS) as calls:
            list(calls.map(self._until_accepted, actions))
        return now() - began

    def _until_accepted(self, action: Action) -> None:
        """Repeat a scale action until it is accepted; a deploy cannot be repeated."""
        try:
            self._client.carry_out(action)
        except ProviderError:
            if action.verb != "scale":
                raise
            self.repeated += 1
            self._until_accepted(action)


def document(name: str) -> dict[str, Any]:
    """Return the deployment of a function or class; a scaler names the function to a class."""
    function, _, kind = name.partition("--")
    env = {"sidecar_function": function, "sidecar_class": kind} if kind else {}
    return {"service": name, "image": "fake:1", "envVars": env}


@pytest.fixture
def installed(control_plane: Cluster, tmp_path: Path) -> Installed:
    """The chart's accounts and namespaces."""
    found = Installed(control_plane, tmp_path)
    found.apply_access()
    return found


@pytest.fixture
def provider(control_plane: Cluster, installed: Installed) -> Iterator[ProviderProcess]:
    """A provider with the chart's account."""
    options = ("--kubeconfig", str(installed.as_account("gateway").kubeconfig))
    with provider_process(control_plane, installed.functions, *options) as process:
        yield process


@pytest.mark.timing
def test_a_plan_for_a_hundred_functions(api_server: Cluster, figure: Callable[[str], None]) -> None:
    """A plan's calls of /scale take at most a second in an otherwise idle cluster."""
    space, names = api_server.namespace(), [f"fn-{number:03}" for number in range(100)]
    with provider_process(api_server, space) as provider:
        functions = Functions(provider.url)
        functions.deploy(names)
        took = [functions.scale(names, replicas) for replicas in range(2, 2 + TURNS)]
    assert dict.fromkeys(names, 1 + TURNS) == of_cluster(api_server, space).replicas
    each = ", ".join(f"{seconds:.2f}" for seconds in sorted(took))
    figure(f"a plan for {len(names)} functions: all calls of /scale, in seconds: {each}")
    assert statistics.median(took) <= PLAN_S


@pytest.mark.slow
@pytest.mark.timeout(3 * ALL_S)
def test_a_provider_with_many_functions(
    control_plane: Cluster,
    installed: Installed,
    provider: ProviderProcess,
    figure: Callable[[str], None],
) -> None:
    """The provider agrees with the API server, even after its restart; idle, it writes nothing."""
    space = installed.functions
    writes = Writes(control_plane, installed.home, "gateway")
    control_plane.fake_nodes(NODES)
    functions, url = Functions(provider.url), provider.url

    deployed_s = functions.deploy([*NAMES, "probe"])
    functions.wait([*NAMES, "probe"], 1)
    figure(f"{len(NAMES)} functions on {NODES} nodes: deployed by calls of {deployed_s:.1f} s")

    one_class = NAMES[:: len(CLASSES)]
    plan_s = functions.scale(one_class, 2)
    figure(f"a plan for {FUNCTIONS} functions: {len(one_class)} calls of /scale in {plan_s:.2f} s")
    functions.wait(one_class, 2)

    (probe,) = (name for function, name in of_provider(url).ready if function == "probe")
    path = f"/api/v1/namespaces/{space}/pods/{probe}"
    with WatchLag(control_plane, path, f"{url}/system/function/probe") as lag:
        scaled_s = functions.scale(NAMES, REPLICAS)
        ready_s = scaled_s + functions.wait(NAMES, REPLICAS)
    assert of_cluster(control_plane, space) == of_provider(url)
    figure(
        f"{PODS} pods: {len(NAMES)} calls of /scale in {scaled_s:.2f} s, all ready in "
        f"{ready_s:.1f} s; lag of watches meanwhile: p50 {lag.quantile(0.5):.2f} s, "
        f"p99 {lag.quantile(0.99):.2f} s ({len(lag.times_s)} times)"
    )

    before, before_s = writes.count(), provider.cpu_s()
    assert before >= 2 * len(NAMES)  # it counts
    threading.Event().wait(IDLE_S)
    idle = (provider.cpu_s() - before_s) / IDLE_S
    assert before == writes.count()

    control_plane.restart("kube-apiserver")
    wait_until(lambda: control_plane.api.exists(path), what="the API server")
    functions.wait(NAMES, REPLICAS)
    assert of_cluster(control_plane, space) == of_provider(url)

    shrunk_s = functions.scale(NAMES, 2)
    gone_s = shrunk_s + functions.wait(NAMES, 2)
    there = of_cluster(control_plane, space)
    wait_until(lambda: there == of_provider(url), what="what there is")
    figure(f"{len(NAMES)} calls of /scale to 2 each in {shrunk_s:.2f} s, so many in {gone_s:.1f} s")

    memory = provider.memory_mib()
    figure(f"the provider: {memory:.0f} MiB at most; idle {idle:.3f} of a core, and no write")
    figure(f"calls of /scale that had to be repeated: {functions.repeated}")
    assert memory <= MOST_MIB
    assert idle <= MOST_IDLE
