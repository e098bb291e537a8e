"""Functions of ``carpool provider kubernetes`` on a real node, as faas-cli and callers see them."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

import pytest
import requests

from tests.cluster import classify
from tests.cluster.callers import Callers
from tests.cluster.deployment import ready_pods
from tests.cluster.provider_process import provider_process
from tests.tools import require_tool
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.cluster import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("classify_image")]
TURNS = 10


class Function:
    """``classify``, behind a provider that runs locally."""

    def __init__(self, cluster: Cluster, space: str, gateway: str) -> None:
        self._cluster = cluster
        self._space = space
        self._gateway = gateway
        self.url = f"{gateway}/function/classify"

    def faas_cli(self, *words: str) -> str:
        command = (require_tool("faas-cli"), *words, "--gateway", self._gateway)
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
        assert 0 == done.returncode, done.stdout + done.stderr
        return done.stdout

    def deploy(self, version: int) -> None:
        """Deploy a version, and wait until it has replaced the previous one."""
        options = ("--name", "classify", "--image", classify.IMAGE, "--env", f"version={version}")
        assert "202" in self.faas_cli("deploy", *options, "--label", "com.carpool.slo=1s")
        path = f"/apis/apps/v1/namespaces/{self._space}/deployments/classify"
        self._cluster.api.wait(path, lambda found: _rolled_out(found, version), "the new version")
        wait_until(lambda: len(self.pods()) == len(self.ready()), what="no pod of the old one")

    def scale(self, replicas: int) -> None:
        url = f"{self._gateway}/system/scale-function/classify"
        requests.post(url, json={"replicas": replicas}, timeout=HANG_S).raise_for_status()
        wait_until(
            lambda: replicas == len(self.pods()) == len(self.ready()), what=f"{replicas} replicas"
        )

    def pods(self) -> list[str]:
        found = self._cluster.api.get(f"/api/v1/namespaces/{self._space}/pods")["items"]
        return [pod["metadata"]["name"] for pod in found]

    def ready(self) -> list[str]:
        found = ready_pods(self._cluster, self._space)
        return [p["metadata"]["name"] for p in found if "deletionTimestamp" not in p["metadata"]]

    def remove(self, pod: str) -> None:
        """Delete a pod, and wait until another one has replaced it."""
        before = len(self.pods())
        self._cluster.api.delete(f"/api/v1/namespaces/{self._space}/pods/{pod}")
        wait_until(
            lambda: pod not in self.pods() and before == len(self.ready()), what="another pod"
        )


def _rolled_out(found: dict[str, dict[str, object]], version: int) -> bool:
    status, spec = found["status"], found["spec"]
    updated = f"'value': '{version}'" in str(spec["template"])
    return (
        updated
        and status.get("observedGeneration") == found["metadata"]["generation"]
        and status.get("updatedReplicas") == status.get("availableReplicas") == spec["replicas"]
    )


@pytest.fixture(scope="module")
def function(cluster: Cluster) -> Iterator[Function]:
    """The function, deployed and ready."""
    space = cluster.namespace()
    with provider_process(cluster, space) as provider:
        deployed = Function(cluster, space, provider.url)
        deployed.deploy(version=1)
        yield deployed
        deployed.faas_cli("remove", "classify")


def test_function_deployed_by_faas_cli_responds(function: Function) -> None:
    """The provider returns the model's result; list, describe and logs show the function."""
    got = classify.answer(function.url)
    assert got is not None
    assert classify.expected(classify.ROW) == pytest.approx(got, rel=1e-5)
    assert "classify" in function.faas_cli("list")
    assert classify.IMAGE in function.faas_cli("describe", "classify")
    assert "handler: ready" in function.faas_cli("logs", "classify", "--tail=false")


def test_call_scales_function_from_zero(function: Function, figure: Callable[[str], None]) -> None:
    """A call to a function without replicas is answered; the time that it took is printed."""
    took = []
    for _ in range(TURNS):
        function.scale(0)
        began = time.perf_counter()
        assert classify.answer(function.url, timeout_s=HANG_S)
        took.append(time.perf_counter() - began)
    each = ", ".join(f"{seconds:.2f}" for seconds in sorted(took))
    figure(f"a call of a function without replicas, through the provider, in seconds: {each}")


def test_no_call_fails_while_replicas_change(
    function: Function, figure: Callable[[str], None]
) -> None:
    """Every call gets its own response during an update, a scale-out, a removal and a scale-in."""
    function.scale(1)
    with Callers(function.url) as callers:
        callers.go_on()
        function.deploy(version=2)
        callers.go_on()
        function.scale(2)
        callers.go_on()
        function.remove(function.ready()[0])
        callers.go_on()
        function.scale(1)
        callers.go_on()
    assert [] == callers.bad
    figure(f"{callers.good} calls through an update, a scale-out, a removed pod and a scale-in")
