"""The control plane that tests start, and its nodes simulated by kwok."""

from __future__ import annotations

import os
from time import perf_counter as now
from typing import TYPE_CHECKING

import pytest

from tests.cluster.api import Refused
from tests.cluster.deployment import deployment, ready_pods
from tests.cluster.programs import build
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.slow
NODES, REPLICAS = 200, 400


def test_the_api_server_is_the_one_that_was_built(api_server: Cluster) -> None:
    """The API server reports the version that was built, on which clients depend."""
    if "CARPOOL_TEST_KUBECONFIG" in os.environ:
        pytest.skip("CARPOOL_TEST_KUBECONFIG names another")
    assert build.version() == api_server.api.get("/version")["gitVersion"]


def test_api_server_stores_valid_objects_and_refuses_invalid_ones(api_server: Cluster) -> None:
    """A Deployment is stored, and one without a selector is refused."""
    path = f"/apis/apps/v1/namespaces/{api_server.namespace()}/deployments"
    made = api_server.api.post(path, deployment("some", "carpool.test/some:1"))
    assert made["metadata"]["uid"] == api_server.api.get(f"{path}/some")["metadata"]["uid"]
    broken = deployment("other", "carpool.test/some:1")
    del broken["spec"]["selector"]
    with pytest.raises(Refused) as refused:
        api_server.api.post(path, broken)
    assert 422 == refused.value.status


def test_fake_nodes_take_pods(control_plane: Cluster, figure: Callable[[str], None]) -> None:
    """Two hundred nodes become ready, and a Deployment's pods come and go on them."""
    began = now()
    control_plane.fake_nodes(NODES)
    nodes_s, began = now() - began, now()
    space = control_plane.namespace()
    path = f"/apis/apps/v1/namespaces/{space}/deployments"
    control_plane.api.post(path, deployment("many", "carpool.test/some:1", replicas=REPLICAS))
    control_plane.api.wait(
        f"{path}/many", lambda d: d["status"].get("readyReplicas") == REPLICAS, "all pods ready"
    )
    pods_s = now() - began
    assert REPLICAS == len(ready_pods(control_plane, space))
    figure(f"{NODES} fake nodes ready in {nodes_s:.1f} s, {REPLICAS} pods in {pods_s:.1f} s")
    control_plane.api.patch(f"{path}/many/scale", {"spec": {"replicas": 0}})
    control_plane.api.wait(
        f"/api/v1/namespaces/{space}/pods", lambda pods: not pods["items"], "no pod left"
    )


def test_objects_survive_a_restart(api_server: Cluster) -> None:
    """Objects are still there after the API server and its store were killed and restarted."""
    space = api_server.namespace()
    for part in ("etcd", "kube-apiserver"):
        api_server.restart(part)
        path = f"/api/v1/namespaces/{space}"
        wait_until(lambda: api_server.api.exists(path), what=f"the namespace after {part}'s end")  # noqa: B023
