"""A provider shows what the API server has, whatever happens to its watches.

There are no controllers: the tests create pods and change functions themselves, behind the
provider's back.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import requests

from faas_stack.provider.kubernetes.names import ID, MANAGED
from tests.cluster.provider_process import provider_process
from tests.cluster.provider_view import of_cluster, of_provider
from tests.cluster.relay import Relay
from tests.cluster.watch_lag import WatchLag
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cluster.cluster import Cluster
    from tests.cluster.provider_process import ProviderProcess

CUTS = 10
TURNS = 100
LATEST_S = 2.0
FUNCTIONS = ("a", "b", "c")


class Changes:
    """Changes of functions and their pods that are not made by a provider.

    Args:
        cluster: an API server alone.
        space: namespace of the functions.
    """

    def __init__(self, cluster: Cluster, space: str) -> None:
        self._api = cluster.api
        self._deployments = f"/apis/apps/v1/namespaces/{space}/deployments"
        self._pods = f"/api/v1/namespaces/{space}/pods"
        self._turn = 0

    def make(self) -> None:
        """Add ready pods, make one not ready, delete one, and scale a function."""
        self._turn += 1
        for name in FUNCTIONS:
            self.pod(name, f"{name}-{self._turn}")
        if self._turn > 1:
            self._set_ready(f"a-{self._turn - 1}", ready=False)
            self._api.delete(f"{self._pods}/b-{self._turn - 1}", gracePeriodSeconds=0)
        path = f"{self._deployments}/{FUNCTIONS[self._turn % len(FUNCTIONS)]}"
        self._api.patch(path, {"spec": {"replicas": self._turn}})

    def remove(self, name: str) -> None:
        """Delete a function and its pods."""
        self._api.delete(f"{self._deployments}/{name}")
        for turn in range(1, self._turn + 1):
            if self._api.exists(f"{self._pods}/{name}-{turn}"):
                self._api.delete(f"{self._pods}/{name}-{turn}", gracePeriodSeconds=0)

    def pod(self, function: str, name: str) -> None:
        """Add a ready pod to a function."""
        identity = self._api.get(f"{self._deployments}/{function}")["metadata"]["labels"][ID]
        labels = {**MANAGED, ID: identity}
        spec = {"containers": [{"name": "function", "image": "none:1"}]}
        self._api.post(self._pods, {"metadata": {"name": name, "labels": labels}, "spec": spec})
        self._set_ready(name, ready=True)

    def _set_ready(self, name: str, *, ready: bool) -> None:
        condition = {"type": "Ready", "status": str(ready)}
        ip = f"127.0.0.{self._turn + 1}"
        status = {"podIP": ip, "podIPs": [{"ip": ip}], "conditions": [condition]}
        self._api.patch(f"{self._pods}/{name}/status", {"status": status})


def watched(provider: ProviderProcess, counter: str) -> dict[str, int]:
    """Return the provider's watch ``counter`` by resource: ``listings`` or ``ends``."""
    text = requests.get(f"{provider.url}/metrics", timeout=HANG_S).text
    found = re.findall(rf'provider_watch_{counter}_total{{.*resource="(\w+)"}} (\d+)', text)
    return {resource: int(count) for resource, count in found}


def cut(relay: Relay, provider: ProviderProcess) -> None:
    """Close all connections, including every watch."""
    before = watched(provider, "ends")

    def ended() -> bool:
        relay.cut()  # a watch may just be about to begin
        after = watched(provider, "ends")
        return all(after[resource] > count for resource, count in before.items())

    wait_until(ended, what="the end of every watch")


@pytest.fixture
def space(api_server: Cluster) -> str:
    """A namespace for functions."""
    return api_server.namespace()


@pytest.fixture
def relay(api_server: Cluster, tmp_path: Path) -> Iterator[Relay]:
    """A relay to the API server, used by the provider only."""
    with Relay(api_server.kubeconfig, tmp_path) as opened:
        yield opened


@pytest.fixture
def provider(api_server: Cluster, relay: Relay, space: str) -> Iterator[ProviderProcess]:
    """A provider that has functions."""
    with provider_process(api_server, space, "--kubeconfig", str(relay.kubeconfig)) as process:
        for name in FUNCTIONS:
            document = {"service": name, "image": "none:1"}
            url = f"{process.url}/system/functions"
            requests.post(url, json=document, timeout=HANG_S).raise_for_status()
        yield process


def wait_for_the_same(provider: ProviderProcess, cluster: Cluster, space: str) -> None:
    """Wait until provider and API server agree."""
    there = of_cluster(cluster, space)
    assert there.ready
    wait_until(lambda: there == of_provider(provider.url), what=f"what there is: {there}")


@pytest.mark.slow
def test_no_change_is_missed_when_watches_are_cut(
    api_server: Cluster, space: str, relay: Relay, provider: ProviderProcess
) -> None:
    """Watches that are cut between changes resume from where they were, without a new listing."""
    changes = Changes(api_server, space)
    changes.make()
    wait_for_the_same(provider, api_server, space)
    before = watched(provider, "listings")
    for _ in range(CUTS):
        changes.make()
        cut(relay, provider)
        changes.make()
        wait_for_the_same(provider, api_server, space)
    changes.remove("c")
    wait_for_the_same(provider, api_server, space)
    assert before == watched(provider, "listings")


@pytest.mark.timing
def test_changes_are_seen_in_time(
    api_server: Cluster, space: str, provider: ProviderProcess, figure: Callable[[str], None]
) -> None:
    """While pods come and go, the provider shows changes soon after the API server stores them."""
    document = {"service": "probe", "image": "none:1"}
    requests.post(f"{provider.url}/system/functions", json=document, timeout=HANG_S)
    changes = Changes(api_server, space)
    changes.pod("probe", "probe")
    pod = f"/api/v1/namespaces/{space}/pods/probe"
    with WatchLag(api_server, pod, f"{provider.url}/system/function/probe") as lag:
        for _ in range(TURNS):
            changes.make()
    latest_s = lag.quantile(0.99)
    figure(f"lag of watches over {TURNS} changes: p99 {latest_s:.2f} s ({len(lag.times_s)} times)")
    assert latest_s <= LATEST_S


@pytest.mark.slow
def test_provider_recovers_from_expired_watch_version(
    api_server: Cluster, space: str, relay: Relay, provider: ProviderProcess
) -> None:
    """A provider that was cut off recovers if the API server has forgotten its version (410)."""
    changes = Changes(api_server, space)
    changes.make()
    wait_for_the_same(provider, api_server, space)
    before = watched(provider, "listings")
    relay.shut = True
    relay.cut()
    for _ in range(3):
        changes.make()
    changes.remove("c")
    api_server.restart("kube-apiserver")  # it remembers no event from before its start
    relay.shut = False
    wait_for_the_same(provider, api_server, space)
    after = watched(provider, "listings")
    assert all(after[resource] > before[resource] for resource in ("deployments", "pods"))
