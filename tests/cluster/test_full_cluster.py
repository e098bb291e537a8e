"""Updates when no node has room for another pod, with a real scheduler and controllers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.fake_nodes import SIZE
from tests.cluster.providers import play
from tests.waiting import wait_until_async

if TYPE_CHECKING:
    from tests.cluster.api import Document
    from tests.cluster.cluster import Cluster
    from tests.faas_stack.rig import Rig

pytestmark = pytest.mark.slow
SLOT = "carpool.test/slot"  # which no node of another test has
FN = {"service": "fn", "image": "fake:1", "limits": {SLOT: "1"}}
BOUNDS = {"com.carpool.scale.min": "2", "com.carpool.scale.max": "9"}


def pods(cluster: Cluster, space: str) -> list[Document]:
    """Return the pods that are not being deleted."""
    found = cluster.api.get(f"/api/v1/namespaces/{space}/pods")["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def observed(cluster: Cluster, space: str) -> bool:
    """Return whether the Deployment's controller has seen the last change of ``fn``."""
    found = cluster.api.get(f"/apis/apps/v1/namespaces/{space}/deployments/fn")
    return bool(found["metadata"]["generation"] == found["status"].get("observedGeneration"))


def revisions(cluster: Cluster, space: str) -> int:
    """Return the number of revisions of the pods so far."""
    return len(cluster.api.get(f"/apis/apps/v1/namespaces/{space}/replicasets")["items"])


def images(cluster: Cluster, space: str) -> list[str]:
    """Return the images of the pods that have a node."""
    placed = (pod["spec"] for pod in pods(cluster, space) if "nodeName" in pod["spec"])
    return [spec["containers"][0]["image"] for spec in placed]


async def reason(rig: Rig) -> str:
    """Return the reason that the status gives for a problem."""
    status: dict[str, Any] = json.loads((await rig.call("GET", "/system/function/fn")).body)
    return str(status.get("annotations", {}).get("kubernetes.reason", ""))


def test_update_without_room_replaces_one_replica_or_waits(control_plane: Cluster) -> None:
    """Of two replicas one makes room for the other's successor; a single one stays, with a reason.

    A change of the bounds on replicas does not update them.
    """
    control_plane.fake_nodes(1, {**SIZE, SLOT: "2"})
    space = control_plane.namespace()

    async def scene(rig: Rig) -> None:
        assert 202 == (await rig.call("POST", "/system/functions", FN)).status
        await rig.ready("fn")
        scaled = await rig.call("PUT", "/system/functions", {**FN, "labels": BOUNDS})
        assert 202 == scaled.status
        await rig.ready("fn", 2)
        await wait_until_async(lambda: observed(control_plane, space), what="the controller")
        assert 1 == revisions(control_plane, space)
        again = {**FN, "image": "fake:2", "labels": BOUNDS}
        assert 202 == (await rig.call("PUT", "/system/functions", again)).status
        await wait_until_async(
            lambda: images(control_plane, space) == ["fake:2"] * 2, what="two of the new image"
        )
        await rig.ready("fn", 2)
        assert "" == await reason(rig)
        other = {**FN, "service": "other"}
        await rig.call("POST", "/system/scale-function/fn", {"replicas": 1})
        assert 202 == (await rig.call("POST", "/system/functions", other)).status
        await rig.ready("other")
        await rig.ready("fn")
        again = {**FN, "image": "fake:3"}
        assert 202 == (await rig.call("PUT", "/system/functions", again)).status
        await wait_until_async(lambda: rig.function("fn").blocked, what="an update that waits")
        assert "scale to 0 and back to update without it; fn-" in await reason(rig)
        assert ["fake:1", "fake:2"] == sorted(images(control_plane, space))
        await rig.call("DELETE", "/system/functions", {"functionName": "other"})
        await wait_until_async(
            lambda: images(control_plane, space) == ["fake:3"], what="the new image"
        )

    play(control_plane.kubeconfig, scene, namespace=space, capacity_patience_s=0.0)
