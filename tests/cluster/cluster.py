"""Kubernetes clusters for tests: one that the tests start, or that of CARPOOL_TEST_KUBECONFIG.

The tests have their own variable, as many shells set KUBECONFIG for clusters that others use.
"""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster.api import Api, Document, Refused
from tests.cluster.control_plane import ControlPlane
from tests.cluster.dns import Dns
from tests.cluster.fake_nodes import SIZE, FakeNodes
from tests.cluster.namespaces import Namespaces
from tests.cluster.node import Node, require_node_tools
from tests.cluster.workspace import Workspace
from tests.tools import require_tool
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LABEL", "Cluster", "foreign", "with_api_server", "with_controllers", "with_node"]

_NOT_FOUND = 404
_PLAYED_LOST_AFTER_S = 400  # what plays a thousand nodes may be held up; what is lost stays so
LABEL = {"app.kubernetes.io/created-by": "carpool-tests"}


class Cluster:
    """An API server, with or without nodes behind it.

    Args:
        kubeconfig: kubeconfig of a user that may do everything.
        plane: control plane started by the tests; None for a foreign cluster.
        node: real node started by the tests.
        host: address under which pods reach this machine.
        alone: whether there is only an API server.

    Attributes:
        api: client for the API server.
    """

    def __init__(
        self,
        kubeconfig: Path,
        plane: ControlPlane | None = None,
        node: Node | None = None,
        host: str = "127.0.0.1",
        *,
        alone: bool = False,
    ) -> None:
        self.kubeconfig = kubeconfig
        self.api = plane.api if plane else Api(kubeconfig)
        self.host = host
        self._plane = plane
        self._node = node
        self._fake_nodes = FakeNodes(plane, tainted=node is not None) if plane else None
        self._alone = alone
        self._made: list[str] = []

    def make(self, path: str, document: Document) -> Document:
        """Create an object outside the tests' namespaces; it is removed with the cluster."""
        made = self.api.post(path, document)
        self._made.append(f"{path}/{made['metadata']['name']}")
        return made

    def namespace(self) -> str:
        """Create a namespace ready for pods, removed with the cluster; return its name."""
        name = f"carpool-test-{secrets.token_hex(4)}"
        document = {"metadata": {"name": name, "labels": LABEL}}
        self.make("/api/v1/namespaces", document)
        if not self._alone:
            account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
            wait_until(lambda: self.api.exists(account), what=f"the account of {name}'s pods")
        return name

    def load_image(self, archive: Path) -> None:
        """Load the images of an archive into the real node."""
        if self._node is None:
            pytest.skip("there is no node of the tests' own to load images into")
        self._node.load_image(archive)

    @contextmanager
    def services(self) -> Iterator[None]:
        """Let pods reach Services by name and address, and the API server by its own Service."""
        if self._node is None or self._plane is None:
            yield  # a cluster that is not the tests' own has all that
            return
        require_tool("iptables")
        with self._node.services(), Dns(Api(self._plane.kubeconfig), self.host):
            yield

    def allow_registry(self, address: str) -> None:
        """Let the real node pull images from a registry over plain HTTP."""
        if self._node is None:
            pytest.skip("there is no node of the tests' own that could pull from a registry here")
        self._node.allow_registry(address)

    def fake_nodes(self, count: int, size: dict[str, str] = SIZE) -> list[str]:
        """Add ``count`` nodes simulated by kwok, and return their names once they are ready."""
        if self._fake_nodes is None:
            pytest.skip("CARPOOL_TEST_KUBECONFIG names a cluster that gets no nodes from tests")
        return self._fake_nodes.add(count, size)

    def restart(self, part: str) -> None:
        """Kill a part and start it again, then wait for the API server.

        Args:
            part: ``etcd``, ``kube-apiserver``, ``kube-controller-manager``, ``kube-scheduler``,
                ``containerd``, ``kubelet`` or ``kwok``.
        """
        if self._plane is None:
            pytest.skip("CARPOOL_TEST_KUBECONFIG names a cluster whose parts tests do not end")
        self._plane.workspace.restart(part)
        self._plane.wait()

    @contextmanager
    def stopped(self, part: str) -> Iterator[None]:
        """Suspend a part, named as for `restart`, during the context."""
        if self._plane is None:
            pytest.skip("CARPOOL_TEST_KUBECONFIG names a cluster whose parts tests do not stop")
        with self._plane.workspace.stopped(part):
            yield

    def close(self) -> None:
        """Stop all that the tests started, or remove what they created in a foreign cluster."""
        if self._plane:
            self._plane.workspace.close()
            return
        refusals = []
        for path in reversed(self._made):
            try:
                self.api.delete(path)
            except Refused as refused:
                if refused.status != _NOT_FOUND:
                    refusals.append(refused)
        if refusals:
            message = "not all that tests have made is removed"
            raise ExceptionGroup(message, refusals)


def foreign() -> Cluster | None:
    """Return the cluster of CARPOOL_TEST_KUBECONFIG; None if the variable is not set."""
    path = os.environ.get("CARPOOL_TEST_KUBECONFIG")
    return Cluster(Path(path)) if path else None


def with_api_server() -> Cluster:
    """Start only an API server, which stores objects without acting on them."""
    return _on_loopback(alone=True)


def with_controllers() -> Cluster:
    """Start a complete control plane without a node."""
    return _on_loopback(alone=False)


def with_node() -> Cluster:
    """Start a complete control plane with a real node. Needs root."""
    require_node_tools()
    namespaces = Namespaces()
    try:
        plane = ControlPlane(namespaces.workspace, namespaces.address)
        plane.start_api_server(alone=False)
        plane.start_controllers()
        node = Node(namespaces, plane)
        node.start()
    except BaseException:
        namespaces.workspace.close()
        raise
    return Cluster(plane.kubeconfig, plane, node, namespaces.host)


def _on_loopback(*, alone: bool) -> Cluster:
    workspace = Workspace()
    try:
        plane = ControlPlane(workspace, lost_after_s=_PLAYED_LOST_AFTER_S)
        plane.start_api_server(alone=alone)
        if not alone:
            plane.start_controllers()
    except BaseException:
        workspace.close()
        raise
    return Cluster(plane.kubeconfig, plane, alone=alone)
