"""A Carpool function on a real node, with the image that ``faas-cli build`` would make."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.cluster import classify
from tests.cluster.deployment import deployment, ready_pods
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.cluster import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("classify_image")]
TURNS = 5


class Deployed:
    """The function, deployed as a Deployment."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.space = cluster.namespace()
        self._path = f"/apis/apps/v1/namespaces/{self.space}/deployments"
        cluster.api.post(
            self._path,
            deployment("classify", classify.IMAGE, carpool_slo="100ms", OMP_NUM_THREADS="1"),
        )

    def scale(self, replicas: int) -> None:
        self.cluster.api.patch(f"{self._path}/classify/scale", {"spec": {"replicas": replicas}})

    def gone(self) -> bool:
        return not self.cluster.api.get(f"/api/v1/namespaces/{self.space}/pods")["items"]

    def answer(self) -> list[float] | None:
        """Return the result from the ready pod; None if there is none or it does not respond."""
        pods = ready_pods(self.cluster, self.space)
        return classify.answer(f"http://{pods[0]['status']['podIP']}:8080") if pods else None


@pytest.fixture(scope="module")
def deployed(cluster: Cluster) -> Iterator[Deployed]:
    """The function with one replica that has responded."""
    function = Deployed(cluster)
    wait_until(function.answer, what="an answer of the pod")
    yield function
    function.scale(0)


def test_pod_returns_same_result_as_local_model(deployed: Deployed) -> None:
    """A pod returns the same result as the model run locally."""
    got = deployed.answer()
    assert got is not None
    assert classify.expected(classify.ROW) == pytest.approx(got, rel=1e-5)


def test_pod_log_is_readable_through_the_api_server(deployed: Deployed) -> None:
    """The API server returns the pod's log from the kubelet."""
    (pod,) = ready_pods(deployed.cluster, deployed.space)
    path = f"/api/v1/namespaces/{deployed.space}/pods/{pod['metadata']['name']}/log"
    assert deployed.cluster.api.text(path)


def test_pod_survives_restart_of_node_and_control_plane(deployed: Deployed) -> None:
    """The same pod responds after its kubelet, the API server and etcd were killed."""
    (before,) = ready_pods(deployed.cluster, deployed.space)
    url = f"http://{before['status']['podIP']}:8080"
    for part in ("kubelet", "kube-apiserver", "etcd"):
        deployed.cluster.restart(part)
        assert classify.answer(url)
    path = f"/api/v1/namespaces/{deployed.space}/pods/{before['metadata']['name']}"
    wait_until(lambda: deployed.cluster.api.exists(path), what="the pod's document")
    (after,) = ready_pods(deployed.cluster, deployed.space)
    assert before["metadata"]["uid"] == after["metadata"]["uid"]
    assert 0 == after["status"]["containerStatuses"][0]["restartCount"]


def test_function_scaled_from_zero_responds(
    deployed: Deployed, figure: Callable[[str], None]
) -> None:
    """A function scaled from zero to one responds, and the time that it takes is printed."""
    took = []
    for _ in range(TURNS):
        deployed.scale(0)
        wait_until(deployed.gone, what="no pod left")
        began = time.perf_counter()
        deployed.scale(1)
        wait_until(deployed.answer, what="an answer of the new pod")
        took.append(time.perf_counter() - began)
    each = ", ".join(f"{seconds:.2f}" for seconds in sorted(took))
    figure(f"a function from zero replicas to its answer, in seconds, {TURNS} times: {each}")
