"""Node drains with the real controllers: how many pods of a function are evicted at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.api import Refused
from tests.cluster.deployment import ready_pods
from tests.cluster.fake_nodes import SIZE
from tests.cluster.providers import play
from tests.waiting import wait_until_async

if TYPE_CHECKING:
    from tests.cluster.cluster import Cluster
    from tests.faas_stack.rig import Rig

pytestmark = pytest.mark.slow
SLOT = "carpool.test/drained"  # which no node of another test has
FN = {"service": "fn", "image": "fake:1", "limits": {SLOT: "1"}}
TOO_MANY_REQUESTS = 429


def staying(cluster: Cluster, space: str) -> list[str]:
    """Return the paths of ready pods that are not being deleted."""
    pods = [each["metadata"] for each in ready_pods(cluster, space)]
    root = f"/api/v1/namespaces/{space}/pods"
    return [f"{root}/{each['name']}" for each in pods if "deletionTimestamp" not in each]


def allowed(cluster: Cluster, space: str) -> int:
    """Return the number of pods that may be evicted now."""
    path = f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets/fn"
    found = cluster.api.get(path)
    observed = found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]
    return int(found["status"]["disruptionsAllowed"]) if observed else 0


def evict(cluster: Cluster, path: str) -> int:
    """Request an eviction as ``kubectl drain`` does, and return the error status, or 0."""
    name = path.rpartition("/")[2]
    try:
        cluster.api.post(f"{path}/eviction", {"metadata": {"name": name}})
    except Refused as refused:
        return refused.status
    return 0


def test_drain_evicts_one_pod_at_a_time(control_plane: Cluster) -> None:
    """A pod is evicted once the last one's successor is ready; a single pod is evicted at once."""
    (node,) = control_plane.fake_nodes(1, {**SIZE, SLOT: "4"})
    space = control_plane.namespace()

    def cordon(*, on: bool) -> None:
        control_plane.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": on}})

    async def scene(rig: Rig) -> None:
        labels = {"com.carpool.scale.min": "2"}
        assert 202 == (await rig.call("POST", "/system/functions", {**FN, "labels": labels})).status
        await rig.ready("fn", 2)
        await wait_until_async(lambda: allowed(control_plane, space) == 1, what="the budget")
        cordon(on=True)
        first, second = staying(control_plane, space)
        statuses = [evict(control_plane, path) for path in (first, second)]
        assert [0, TOO_MANY_REQUESTS] == statuses
        assert [second] == staying(control_plane, space)
        cordon(on=False)
        await wait_until_async(
            lambda: len(staying(control_plane, space)) == 2 and allowed(control_plane, space),
            what="its successor",
        )
        assert 0 == evict(control_plane, second)
        await rig.call("POST", "/system/scale-function/fn", {"replicas": 1})
        await wait_until_async(
            lambda: len(staying(control_plane, space)) == 1 and allowed(control_plane, space),
            what="a single pod",
        )
        (last,) = staying(control_plane, space)
        assert 0 == evict(control_plane, last)
        await rig.call("DELETE", "/system/functions", {"functionName": "fn"})
        budgets = f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets"
        await wait_until_async(
            lambda: not control_plane.api.get(budgets)["items"], what="nothing is left behind"
        )

    play(control_plane.kubeconfig, scene, namespace=space)
