"""Commands of docs/kubernetes.md against an API server without nodes, with the page's own names.

Commands that need pods, such as waiting and port forwarding, are tested in test_helm.py.
"""

from __future__ import annotations

import base64
import os
import re
import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.cluster.cluster import with_api_server
from tests.cluster.provider_process import provider_process
from tests.cluster.scaler_process import ScalerProcess
from tests.docs.snippets import ROOT, blocks, take_one
from tests.tools import require_tool
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.slow
PAGE = "docs/kubernetes.md"
INSTALL = take_one(PAGE, "namespaces.yaml$", within="helm install")
(QUERY,) = (block.text for block in blocks(PAGE) if "port-forward svc/carpool-scaler" in block.text)
(UPGRADE,) = (block.text for block in blocks(PAGE) if re.search("upgrade .* --wait$", block.first))
MANIFESTS = take_one(PAGE, "namespaces.yaml$", within="carpool.yaml")
SCENARIO = take_one(PAGE, "--set-file autoscaler.scenario=")
SHARES = take_one(PAGE, "--set gpu.shares=")
LEASE = take_one(PAGE, "get lease")
REGISTRY = take_one(PAGE, "create secret docker-registry")
PREPULLED = take_one(PAGE, "delete daemonset")
ALLOCATABLE = re.findall(r"`(kubectl get nodes -o .*?)`", (ROOT / PAGE).read_text())[0]


class _Reader:
    """Runner for the page's commands, in a folder with the chart and as a cluster administrator."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        for program in ("kubectl", "helm", "faas-cli"):
            require_tool(program)
        (folder / "charts").symlink_to(ROOT / "charts")
        self._folder = folder
        self.env = os.environ | {"KUBECONFIG": str(cluster.kubeconfig), "HOME": str(folder)}

    def run(self, text: str) -> str:
        """Run commands, which must all succeed, and return their standard output."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self._folder,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert 0 == done.returncode, f"{text}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def server() -> Iterator[Cluster]:
    """A separate API server, as the page's names may exist in real clusters too."""
    cluster = with_api_server()
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def reader(server: Cluster, tmp_path: Path) -> _Reader:
    """A reader whose current context is the server."""
    return _Reader(server, tmp_path)


def _without_pods(text: str) -> str:
    """Return the commands without those that need pods."""
    text = re.sub(r"kubectl .* port-forward .*\n|^carpool .*\n", "", text, flags=re.MULTILINE)
    return re.sub(r" --wait\b| \\\n *\| faas-cli login .*", "", text)


def _secret(server: Cluster, name: str, key: str) -> str:
    data = server.api.get(f"/api/v1/namespaces/openfaas/secrets/{name}")["data"]
    return base64.b64decode(data[key]).decode()


def test_helm(server: Cluster, reader: _Reader, tmp_path: Path) -> None:
    """Each upgrade after the installation keeps the values set before."""
    assert reader.run(_without_pods(INSTALL)).endswith(
        _secret(server, "basic-auth", "basic-auth-password")
    )
    reader.run(_without_pods(QUERY))
    token = (tmp_path / "token").read_text()
    assert token == _secret(server, "carpool-scaler-token", "carpool-scaler-token")
    scenario = (ROOT / "examples" / "scenarios" / "osvt.yaml").read_text()
    (tmp_path / "scenario.yaml").write_text(scenario)
    reader.run(SCENARIO)
    reader.run(SHARES)
    reader.run(_without_pods(UPGRADE))
    values = yaml.safe_load(reader.run("helm get values carpool --namespace openfaas -o yaml"))
    assert {"autoscaler": {"scenario": scenario}, "gpu": {"shares": 4}} == values


def test_manifests_without_helm(server: Cluster, reader: _Reader) -> None:
    """All objects are created, with secrets that are not empty."""
    created = reader.run(MANIFESTS).splitlines()
    assert created
    assert all(line.endswith(" created") for line in created)
    for name in ("gateway", "carpool-scaler"):
        assert server.api.exists(f"/apis/apps/v1/namespaces/openfaas/deployments/{name}")
    assert 32 == len(_secret(server, "basic-auth", "basic-auth-password"))
    assert 64 == len(_secret(server, "carpool-scaler-token", "carpool-scaler-token"))


def test_images(server: Cluster, reader: _Reader) -> None:
    """A pod uses a Secret created by kubectl, and old DaemonSets are removed by label."""
    reader.run("kubectl apply -f charts/manifests/namespaces.yaml")
    apps = "/apis/apps/v1/namespaces/openfaas-fn"
    with provider_process(server, "openfaas-fn", "--prepull") as provider:
        reader.env["OPENFAAS_URL"] = provider.url
        reader.run(REGISTRY)
        wait_until(lambda: server.api.get(f"{apps}/daemonsets")["items"], what="a DaemonSet")
    function = server.api.get(f"{apps}/deployments/classify")["spec"]["template"]["spec"]
    assert [{"name": "registry"}] == function["imagePullSecrets"]
    assert "registry" not in str(function.get("volumes"))
    reader.run(PREPULLED)
    assert [] == server.api.get(f"{apps}/daemonsets")["items"]


def test_lease_shows_the_leading_scaler(server: Cluster, reader: _Reader, tmp_path: Path) -> None:
    """The Lease shows the leading scaler, and since when it leads."""
    reader.run("kubectl apply -f charts/manifests/namespaces.yaml")
    path = "/apis/coordination.k8s.io/v1/namespaces/openfaas/leases/carpool-scaler"
    with provider_process(server, "openfaas-fn") as provider:
        lease = "openfaas/carpool-scaler"
        own = ("--gateway", provider.url)
        scaler = ScalerProcess(tmp_path / "scaler", server.kubeconfig, lease, *own)
        try:
            scaler.wait()
            found = server.api.get(path)["spec"]
            shown = reader.run(LEASE).split()
        finally:
            scaler.end()
    assert ["LEADER", "SINCE", found["holderIdentity"], found["acquireTime"]] == shown


def test_gpus_of_nodes(server: Cluster, reader: _Reader) -> None:
    """The troubleshooting table's command shows the number of GPUs on each node."""
    server.api.post("/api/v1/nodes", {"metadata": {"name": "one"}})
    offered = {"nvidia.com/gpu": "4"}
    status = {"status": {"allocatable": offered, "capacity": offered}}
    server.api.patch("/api/v1/nodes/one/status", status)
    assert ["N", "G", "one", "4"] == reader.run(ALLOCATABLE).split()
