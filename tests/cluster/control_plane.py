"""A control plane: etcd, the API server, the controllers and the scheduler, as processes.

They listen on the node's address if there is a node, else on loopback, on ports that no other
process uses. So any number of them can run on one machine, and only a node needs root.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.cluster import credentials
from tests.cluster.api import Api
from tests.cluster.programs import build
from tests.ports import free_port
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.api import Document
    from tests.cluster.workspace import Workspace

__all__ = ["PACKING", "ControlPlane", "require_program"]

PACKING = "packing"  # a scheduler that fills one node after the other
_SERVICES = "10.96.0.0/16"


def require_program(name: str) -> str:
    """Return the path of a program built for tests, or skip the test if it is not built."""
    path = build.program(name)
    if path.exists():
        return str(path)
    if build.find_go() is None:
        pytest.skip("kubernetes is not built, and go is neither on the PATH nor in /usr/local/go")
    pytest.skip(f"kubernetes is not built ({name}); `make kubernetes` does it, in minutes")


class ControlPlane:
    """etcd and an API server, and the other parts of a control plane on request.

    Args:
        workspace: workspace in which it runs.
        address: address on which all parts listen.
        lost_after_s: seconds of silence after which a node is lost and its pods are not ready.

    Attributes:
        folder: certificates, tokens and kubeconfigs; tests use ``admin.conf``.
        address: address on which all parts listen.
    """

    def __init__(
        self, workspace: Workspace, address: str = "127.0.0.1", lost_after_s: int = 50
    ) -> None:
        self.workspace = workspace
        self.address = address
        self.lost_after_s = lost_after_s
        self.folder = workspace.folder / "credentials"
        self._kube = require_program("kube")
        self._etcd = f"http://127.0.0.1:{free_port()}"
        self._api = f"{address}:{free_port()}"
        credentials.make(self.folder, {address, "127.0.0.1", "10.96.0.1"})
        credentials.write_kubeconfigs(self.folder, f"https://{self._api}")
        self.api = Api(self.kubeconfig, explain=workspace.check)

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of an administrator."""
        return self.folder / "admin.conf"

    def start_api_server(self, *, alone: bool) -> None:
        """Start the API server and its store, and wait until they are ready.

        Args:
            alone: whether there is no controller to create the service accounts that pods need.
        """
        self._start_etcd()
        files = {
            "tls-cert-file": "apiserver.crt",
            "tls-private-key-file": "apiserver.key",
            "client-ca-file": "ca.crt",
            "token-auth-file": "tokens.csv",
            "service-account-key-file": "sa.key",
            "service-account-signing-key-file": "sa.key",
            "kubelet-client-certificate": "client.crt",
            "kubelet-client-key": "client.key",
        }
        host, port = self._api.split(":")
        self._start(
            "kube-apiserver",
            *(f"--{name}={self.folder / file}" for name, file in files.items()),
            f"--etcd-servers={self._etcd}",
            f"--bind-address={host}",
            f"--advertise-address={host}",
            f"--secure-port={port}",
            "--authorization-mode=Node,RBAC",
            "--anonymous-auth=false",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-cluster-ip-range={_SERVICES}",
            "--kubelet-preferred-address-types=InternalIP",
            "--endpoint-reconciler-type=none",
            "--enable-admission-plugins=NodeRestriction",
            "--max-requests-inflight=3000",  # of kwok, for a thousand nodes
            "--max-mutating-requests-inflight=1500",
            f"--disable-admission-plugins={'ServiceAccount' if alone else ''}",
        )
        self.wait()

    def wait(self) -> None:
        """Wait until the API server and its store are ready."""
        self._wait(lambda: self.api.exists("/readyz"), "the API server")

    @contextmanager
    def published(self) -> Iterator[None]:
        """Publish the API server's address as the endpoint of its own Service."""
        host, port = self._api.split(":")
        slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
        self.api.post(
            slices,
            {
                "metadata": {
                    "name": "kubernetes",
                    "labels": {"kubernetes.io/service-name": "kubernetes"},
                },
                "addressType": "IPv4",
                "endpoints": [{"addresses": [host], "conditions": {"ready": True}}],
                "ports": [{"name": "https", "port": int(port)}],
            },
        )
        try:
            yield
        finally:
            self.api.delete(f"{slices}/kubernetes")

    def start_controllers(self) -> None:
        """Start the controllers and the scheduler, and wait until pods can be created."""
        self._start(
            "kube-controller-manager",
            f"--kubeconfig={self.folder / 'controllers.conf'}",
            f"--service-account-private-key-file={self.folder / 'sa.key'}",
            f"--root-ca-file={self.folder / 'ca.crt'}",
            "--use-service-account-credentials",
            "--leader-elect=false",
            "--secure-port=0",
            "--allocate-node-cidrs=false",
            f"--node-monitor-grace-period={self.lost_after_s}s",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--concurrent-deployment-syncs=20",
            "--concurrent-replicaset-syncs=20",
        )
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {
                "kubeconfig": str(self.folder / "scheduler.conf"),
                "qps": 1000,
                "burst": 2000,
            },
            "profiles": [{"schedulerName": "default-scheduler"}, _packing()],
        }
        (self.folder / "scheduler.yaml").write_text(json.dumps(config))
        self._start(
            "kube-scheduler", f"--config={self.folder / 'scheduler.yaml'}", "--secure-port=0"
        )
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self._wait(lambda: self.api.exists(account), "the controllers")

    def _start_etcd(self) -> None:
        self._start(
            "etcd",
            f"--data-dir={self.workspace.folder / 'etcd-data'}",
            f"--client-url={self._etcd}",
            f"--peer-url=http://127.0.0.1:{free_port()}",
        )

    def _start(self, part: str, *flags: str) -> None:
        self.workspace.start(part, self._kube, part, *flags)

    def _wait(self, holds: object, what: str) -> None:
        def look() -> bool:
            self.workspace.check()
            return bool(holds())  # type: ignore[operator]

        wait_until(look, what=what)


def _packing() -> Document:
    """Return a scheduler profile that prefers the fullest node."""
    resources = [{"name": "cpu", "weight": 1}]
    strategy = {"type": "MostAllocated", "resources": resources}
    fit = {"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}
    spread = ("NodeResourcesBalancedAllocation", "PodTopologySpread", "ImageLocality")
    return {
        "schedulerName": PACKING,
        "plugins": {"score": {"disabled": [{"name": name} for name in spread]}},
        "pluginConfig": [fit],
    }
