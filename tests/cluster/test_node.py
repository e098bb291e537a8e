"""A function of Carpool's on a real node: containerd runs what ``faas-cli build`` would make."""

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
    """The function as a Deployment."""

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
        """Of the pod that is ready, once there is one and it answers."""
        pods = ready_pods(self.cluster, self.space)
        return classify.answer(f"http://{pods[0]['status']['podIP']}:8080") if pods else None


@pytest.fixture(scope="module")
def deployed(cluster: Cluster) -> Iterator[Deployed]:
    """The function with one replica, which has answered."""
    function = Deployed(cluster)
    wait_until(function.answer, what="an answer of the pod")
    yield function
    function.scale(0)


def test_a_pod_answers_as_the_model_does_here(deployed: Deployed) -> None:
    """The model's own numbers come back from the pod."""
    got = deployed.answer()
    assert got is not None
    assert classify.expected(classify.ROW) == pytest.approx(got, rel=1e-5)


def test_its_log_can_be_read_through_the_api_server(deployed: Deployed) -> None:
    """The API server asks the kubelet, and what comes is the sidecar's."""
    (pod,) = ready_pods(deployed.cluster, deployed.space)
    path = f"/api/v1/namespaces/{deployed.space}/pods/{pod['metadata']['name']}/log"
    assert deployed.cluster.api.text(path)


def test_a_pod_goes_on_while_the_node_and_the_control_plane_restart(deployed: Deployed) -> None:
    """The same pod answers after its kubelet, the API server and etcd ended without a warning."""
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


def test_it_comes_back_from_zero(deployed: Deployed, figure: Callable[[str], None]) -> None:
    """A replica more, from none, answers; the time from the call to the answer is printed."""
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
