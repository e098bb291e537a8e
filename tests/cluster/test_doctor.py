"""``carpool doctor --kubernetes`` with a real API server: each trap is found, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from faas_stack.provider.kubernetes.names import NAMESPACE_SELECTOR
from tests.cluster import credentials
from tests.cluster.chart import Installed
from tests.cluster.plain_nodes import make_node
from tests.faas_stack.doctor_case import Doctor
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.slow  # it starts an API server
SCALED = {"com.carpool.slo": "200ms", "com.carpool.scale.policy": "infless"}
KEY, _, VALUE = NAMESPACE_SELECTOR.partition("=")


@pytest.fixture
def installed(
    api_server: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Installed]:
    """The chart's accounts, a namespace for functions, and a node with four cores and two GPUs."""
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    found = Installed(api_server, tmp_path)
    found.apply_access()
    api_server.api.patch(
        f"/api/v1/namespaces/{found.functions}", {"metadata": {"labels": {KEY: VALUE}}}
    )
    make_node(api_server, f"node-{found.home}", "2")
    yield found
    api_server.api.delete(f"/api/v1/nodes/node-{found.home}")


@pytest.fixture
def doctor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """A doctor for stack files."""
    return Doctor(tmp_path, capsys)


def found(doctor: Doctor, installed: Installed, **function: Any) -> list[dict[str, str]]:
    """Return the findings of the cluster checks for one function."""
    of = {"namespace": installed.functions, **function}
    said = doctor.says(of, "--kubernetes", installed.home)
    return [each for each in said if each["check"].startswith(("cluster", "reachable"))]


def test_no_findings_for_a_sound_function(doctor: Doctor, installed: Installed) -> None:
    """There are no findings for a scaled function with limits."""
    assert [] == found(doctor, installed, limits={"cpu": "1", "memory": "256Mi"}, labels=SCALED)


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [("nowhere", None, "does not exist"), ("plain", {}, f"has no label {NAMESPACE_SELECTOR}")],
)
def test_missing_or_unwatched_namespace_is_found(
    doctor: Doctor, installed: Installed, name: str, labels: Any, expected: str
) -> None:
    """A namespace that is missing, or that no provider watches, is found with the fix."""
    namespace = f"{name}-{installed.home}"
    if labels is not None:
        document = {"metadata": {"name": namespace, "labels": labels}}
        installed.cluster.make("/api/v1/namespaces", document)
    said = found(doctor, installed, namespace=namespace)
    (finding,) = [each for each in said if each["check"] == "cluster-namespace"]
    assert expected in finding["expected"]
    assert f"kubectl label namespace {namespace} {NAMESPACE_SELECTOR}" in finding["fix"]


def test_an_autoscaler_of_the_same_deployment(doctor: Doctor, installed: Installed) -> None:
    """An autoscaler of the function or of one of its classes is found, but not that of another."""
    path = f"/apis/autoscaling/v2/namespaces/{installed.functions}/horizontalpodautoscalers"
    for target in ("fn", "fn--b4-c1", "other"):
        spec = {
            "maxReplicas": 3,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
        }
        installed.cluster.api.post(path, {"metadata": {"name": target}, "spec": spec})
    said = found(doctor, installed, labels=SCALED)
    assert ["fn", "fn--b4-c1"] == [each["value"] for each in said]
    assert {"cluster-autoscaler"} == {each["check"] for each in said}
    assert [] == found(doctor, installed)  # nothing else scales it


def test_keda_of_the_same_deployment(doctor: Doctor, installed: Installed) -> None:
    """A KEDA ScaledObject of the function's Deployment is found, but not one of another target."""
    api, group = installed.cluster.api, "keda.sh"
    path = f"/apis/{group}/v1alpha1/namespaces/{installed.functions}/scaledobjects"
    if not api.exists(path):
        names = {"kind": "ScaledObject", "plural": "scaledobjects", "singular": "scaledobject"}
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1alpha1", "served": True, "storage": True}
        definition = {
            "metadata": {"name": f"scaledobjects.{group}"},
            "spec": {
                "group": group,
                "names": names,
                "scope": "Namespaced",
                "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
            },
        }
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        installed.cluster.make(crds, definition)
        wait_until(lambda: api.exists(path), what="KEDA's kind")
    for name, target in (("own", {"name": "fn--b4-c1"}), ("set", {"kind": "StatefulSet"})):
        document = {
            "apiVersion": f"{group}/v1alpha1",
            "kind": "ScaledObject",
            "metadata": {"name": name},
            "spec": {"scaleTargetRef": {"name": "fn", **target}},
        }
        api.post(path, document)
    (finding,) = found(doctor, installed, labels=SCALED)
    assert ("cluster-autoscaler", "fn--b4-c1") == (finding["check"], finding["value"])
    assert f"ScaledObject {installed.functions}/own" in finding["where"]


def test_a_pod_that_is_not_admitted(doctor: Doctor, installed: Installed) -> None:
    """The finding has the API server's reason, here a limit range."""
    limits = [{"type": "Container", "max": {"cpu": "500m"}}]
    installed.cluster.api.post(
        f"/api/v1/namespaces/{installed.functions}/limitranges",
        {"metadata": {"name": "small"}, "spec": {"limits": limits}},
    )
    (finding,) = found(doctor, installed, limits={"cpu": "1"})
    assert "cluster-pod" == finding["check"]
    assert "maximum cpu usage per Container is 500m" in finding["value"]


def test_request_exceeding_the_nodes_is_found(doctor: Doctor, installed: Installed) -> None:
    """Five cores on a node of four, and three GPUs on one of two, are found."""
    (finding,) = found(doctor, installed, limits={"cpu": "5"})
    assert ("cluster-capacity", "1 x 5 cores, 0 MB") == (finding["check"], finding["value"])
    labels = {"com.carpool.gpu": "100", "com.carpool.scale.min": "3"}
    (finding,) = found(doctor, installed, labels=labels)
    assert ("cluster-capacity", "3 x 0 cores, 0 MB, 100 % of a GPU") == (
        *(finding["check"], finding["value"]),
    )


def test_rights_that_the_provider_lacks(doctor: Doctor, installed: Installed) -> None:
    """A rule missing from the provider's role is found."""
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{installed.functions}/roles/gateway"
    rules = installed.cluster.api.get(path)["rules"]
    without = [each for each in rules if each["resources"] != ["deployments/scale"]]
    installed.cluster.api.patch(path, {"rules": without})
    (finding,) = found(doctor, installed)
    assert "cluster-rights" == finding["check"]
    assert f"patch deployments/scale in {installed.functions}" in finding["expected"]


def test_a_cluster_that_does_not_answer(
    doctor: Doctor, installed: Installed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An unreachable cluster is the only finding."""
    text = installed.cluster.kubeconfig.read_text()
    server = installed.cluster.api.server
    (tmp_path / "gone.conf").write_text(text.replace(server, "https://127.0.0.1:1"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "gone.conf"))
    (finding,) = found(doctor, installed, limits={"cpu": "500"})
    assert "reachable" == finding["check"]


def test_exceeded_quota_and_missing_cpu_manager_are_found(
    cluster: Cluster, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exceeded quota is found, and a kubelet without the static CPU manager."""
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    space = cluster.namespace()
    cluster.api.patch(f"/api/v1/namespaces/{space}", {"metadata": {"labels": {KEY: VALUE}}})
    quotas = f"/api/v1/namespaces/{space}/resourcequotas"
    cluster.api.post(quotas, {"metadata": {"name": "small"}, "spec": {"hard": {"limits.cpu": "1"}}})
    cluster.api.wait(f"{quotas}/small", lambda q: q["status"].get("hard"), "the quota's count")

    def said(**function: Any) -> dict[str, str]:
        findings = doctor.says({"namespace": space, **function}, "--kubernetes")
        return {each["check"]: str(each) for each in findings}

    large, small = ({"cpu": cores, "memory": "64Mi"} for cores in ("2", "500m"))
    assert "exceeded quota: small" in said(limits=large)["cluster-pod"]
    assert "cluster-pod" not in said(limits=small)
    pinned = said(limits={**small, "cpu": "1"}, constraints=["cpu=pinned"])
    assert "cpuManagerPolicy: static" in pinned["cluster-pinning"]
    assert credentials.NODE in pinned["cluster-pinning"]
    assert "cluster-pinning" not in said(limits=small)
