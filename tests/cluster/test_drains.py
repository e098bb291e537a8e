"""Node drains with the real controllers: how many pods of a function are evicted at once."""

from __future__ import annotations

from functools import partial
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


def scheduled(cluster: Cluster, path: str) -> str:
    """Return whether the scheduler has found a node for a pod: True, False, or empty."""
    conditions = cluster.api.get(path).get("status", {}).get("conditions", [])
    return {each["type"]: str(each["status"]) for each in conditions}.get("PodScheduled", "")


async def cordon(cluster: Cluster, node: str, space: str) -> None:
    """Cordon a node, and return once the scheduler finds no node for a pod that needs it."""
    cluster.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
    limits = {"resources": {"limits": {SLOT: "1"}}}
    spec = {"containers": [{"name": "probe", "image": "fake:1", **limits}]}
    probe = {"metadata": {"generateName": "probe-"}, "spec": spec}
    pods = f"/api/v1/namespaces/{space}/pods"
    known = False
    while not known:
        path = f"{pods}/{cluster.api.post(pods, probe)['metadata']['name']}"
        await wait_until_async(partial(scheduled, cluster, path), what="a decision on the probe")
        known = scheduled(cluster, path) == "False"
        cluster.api.delete(path, gracePeriodSeconds=0)


def settled(cluster: Cluster, space: str, replicas: int) -> bool:
    """Return whether a function has this many pods, all ready, and one of them may be evicted."""
    found = cluster.api.get(f"/apis/apps/v1/namespaces/{space}/deployments/fn")
    status = found["status"]
    return (
        status.get("observedGeneration") == found["metadata"]["generation"]
        and found["spec"]["replicas"] == status.get("replicas") == replicas
        and len(staying(cluster, space)) == replicas
        and allowed(cluster, space) == 1
    )


def test_drain_evicts_one_pod_at_a_time(control_plane: Cluster) -> None:
    """A pod is evicted once the last one's successor is ready; a single pod is evicted at once."""
    (node,) = control_plane.fake_nodes(1, {**SIZE, SLOT: "4"})
    space = control_plane.namespace()

    async def scene(rig: Rig) -> None:
        labels = {"com.carpool.scale.min": "2"}
        assert 202 == (await rig.call("POST", "/system/functions", {**FN, "labels": labels})).status
        await wait_until_async(lambda: settled(control_plane, space, 2), what="two pods")
        await cordon(control_plane, node, space)
        first, second = staying(control_plane, space)
        statuses = [evict(control_plane, path) for path in (first, second)]
        assert [0, TOO_MANY_REQUESTS] == statuses
        assert [second] == staying(control_plane, space)
        control_plane.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": False}})
        await wait_until_async(lambda: settled(control_plane, space, 2), what="its successor")
        assert 0 == evict(control_plane, second)
        await rig.call("POST", "/system/scale-function/fn", {"replicas": 1})
        await wait_until_async(lambda: settled(control_plane, space, 1), what="a single pod")
        (last,) = staying(control_plane, space)
        assert 0 == evict(control_plane, last)
        await rig.call("DELETE", "/system/functions", {"functionName": "fn"})
        budgets = f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets"
        await wait_until_async(
            lambda: not control_plane.api.get(budgets)["items"], what="nothing is left behind"
        )

    play(control_plane.kubeconfig, scene, namespace=space)
