"""A provider with many functions, on nodes that kwok plays: it sees what there is, and is small.

``cluster_share=1`` is the full size: a thousand nodes, three hundred functions, ten thousand pods.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter as now
from typing import TYPE_CHECKING

import pytest
import requests

from tests.cluster.provider_process import provider_process
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.slow
SHARE = float(os.environ.get("cluster_share", "0.1"))
NODES, FUNCTIONS = int(1000 * SHARE), int(300 * SHARE)
REPLICAS = 33
AT_ONCE = 16
IDLE_S = 10.0
ALL_S = 600 * max(1.0, SHARE)


class Functions:
    """The functions of a provider."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._names = [f"fn-{number:03}" for number in range(FUNCTIONS)]

    def each(self, path: str, document: Callable[[str], dict[str, object]]) -> float:
        """Post a document for every function; how long that took, in seconds."""
        began = now()
        with requests.Session() as session, ThreadPoolExecutor(AT_ONCE) as calls:

            def post(name: str) -> None:
                url = self._url + path.format(name)
                session.post(url, json=document(name), timeout=HANG_S).raise_for_status()

            list(calls.map(post, self._names))
        return now() - began

    def deploy(self) -> float:
        return self.each("/system/functions", lambda name: {"service": name, "image": "fake:1"})

    def scale(self, replicas: int) -> float:
        return self.each("/system/scale-function/{}", lambda _: {"replicas": replicas})

    def available(self) -> dict[str, int]:
        found = requests.get(f"{self._url}/system/functions", timeout=HANG_S).json()
        return {each["name"]: each["availableReplicas"] for each in found}

    def wait(self, replicas: int) -> float:
        """Wait until the provider sees that many of each; how long that took, in seconds."""
        began, pause = now(), threading.Event()
        wanted = dict.fromkeys(self._names, replicas)

        def seen() -> bool:
            pause.wait(0.2)
            return wanted == self.available()

        wait_until(seen, ALL_S, what=f"{replicas} replicas of each")
        return now() - began


@pytest.mark.timeout(3 * ALL_S)
def test_a_provider_with_many_functions(
    control_plane: Cluster, figure: Callable[[str], None]
) -> None:
    """What it shows is what there is, also after its watches were cut."""
    control_plane.fake_nodes(NODES)
    space = control_plane.namespace()
    pods = f"/api/v1/namespaces/{space}/pods"
    with provider_process(control_plane, space) as provider:
        functions = Functions(provider.url)
        deployed_s = functions.deploy()
        functions.wait(1)
        scaled_s = functions.scale(REPLICAS)
        ready_s = scaled_s + functions.wait(REPLICAS)
        assert FUNCTIONS * REPLICAS == len(control_plane.api.get(pods)["items"])
        figure(
            f"{FUNCTIONS} functions on {NODES} nodes: deployed in {deployed_s:.1f} s, all scaled "
            f"by calls of {scaled_s:.2f} s in all, {FUNCTIONS * REPLICAS} pods seen ready after "
            f"{ready_s:.1f} s"
        )
        before_s = provider.cpu_s()
        threading.Event().wait(IDLE_S)
        idle = (provider.cpu_s() - before_s) / IDLE_S
        control_plane.restart("kube-apiserver")
        wait_until(lambda: control_plane.api.exists(pods), what="the API server")
        functions.wait(REPLICAS)
        functions.scale(2)
        functions.wait(2)
        figure(f"its provider: {provider.memory_mib():.0f} MiB at most, {idle:.3f} of a core idle")
