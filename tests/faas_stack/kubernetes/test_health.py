"""Test of ``/healthz`` of a provider whose view of the cluster is out of date."""

from __future__ import annotations

from typing import TYPE_CHECKING

import uvloop

from carpool.http.client import Pool
from faas_stack.provider.app import Provider, ProviderOptions
from faas_stack.provider.kubernetes.options import KubernetesOptions
from faas_stack.provider.kubernetes.orchestrator import KubernetesOrchestrator
from tests.faas_stack.kubernetes.scripted_cluster import (
    NAMESPACE,
    ScriptedCluster,
    connected,
    refuse,
)
from tests.waiting import wait_until_async

if TYPE_CHECKING:
    from pathlib import Path

PODS = f"{NAMESPACE}/pods"


def test_provider_without_changes_reports_it_and_stays_healthy(tmp_path: Path) -> None:
    """A provider that receives no changes says so and stays healthy.

    It still forwards calls to the pods it knows, so a 503 would take working providers out of
    service.
    """

    async def run() -> None:
        cluster = ScriptedCluster()
        async with connected(cluster, tmp_path) as api:
            orchestrator = KubernetesOrchestrator(api, KubernetesOptions())
            provider = Provider(orchestrator, ProviderOptions("127.0.0.1:0"))
            await provider.listen()
            client = Pool(provider.address)
            assert (200, b"OK") == (await client.request("GET", "/healthz"))[::2]
            await wait_until_async(lambda: PODS in cluster.watchers, what="the watch")
            refused = cluster.first["GET", PODS] = [lambda each: refuse(each, 403, "Forbidden")] * 9
            cluster.end_watches()
            await wait_until_async(lambda: orchestrator.behind, what="a watch that fails")
            behind = (200, b"OK, but changes are currently not received")
            assert behind == (await client.request("GET", "/healthz"))[::2]
            refused.clear()
            await wait_until_async(lambda: not orchestrator.behind, what="the next watch")
            assert (200, b"OK") == (await client.request("GET", "/healthz"))[::2]
            client.close()
            await provider.drain()

    uvloop.run(run())
