"""Nodes simulated by kwok: pods on them become ready at once, and run nothing."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster import programs
from tests.cluster.api import Document, is_true
from tests.cluster.control_plane import require_program
from tests.ports import free_port
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.cluster.control_plane import ControlPlane

__all__ = ["SIZE", "FakeNodes"]

SIZE = {"cpu": "32", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "4"}
_MARK = "kwok.x-k8s.io/node"
_STAGES = Path(next(iter(programs.__path__))) / "kwok" / "stages.yaml"
_POLL_S = 0.5
_AT_ONCE = 8  # calls of the API server
_INFO = (
    *("architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion"),
    *("kubeletVersion", "machineID", "operatingSystem", "osImage", "systemUUID"),
)


class FakeNodes:
    """The nodes of a control plane that are simulated by kwok.

    Args:
        tainted: whether pods need a toleration for them, as beside a real node.
    """

    def __init__(self, plane: ControlPlane, *, tainted: bool) -> None:
        self._plane = plane
        self._tainted = tainted
        self._count = 0

    def add(self, count: int, size: dict[str, str]) -> list[str]:
        """Add ``count`` nodes of a size, and return their names once all are ready."""
        if not self._count:
            self._start_kwok()
        names = [f"fake-{self._count + number:04}" for number in range(count)]
        self._count += count
        with ThreadPoolExecutor(_AT_ONCE) as calls:
            nodes = (_node(name, size, tainted=self._tainted) for name in names)
            list(calls.map(lambda node: self._plane.api.post("/api/v1/nodes", node), nodes))
        pause = threading.Event()  # a list of a thousand nodes is work for the API server
        wait_until(
            lambda: pause.wait(_POLL_S) or set(names) <= self._ready(), what=f"{count} nodes ready"
        )
        return names

    def _ready(self) -> set[str]:
        self._plane.workspace.check()
        nodes = self._plane.api.get("/api/v1/nodes")["items"]
        return {node["metadata"]["name"] for node in nodes if is_true(node, "Ready")}

    def _start_kwok(self) -> None:
        self._plane.workspace.start(
            *("kwok", require_program("kwok"), f"--config={_STAGES}"),
            f"--kubeconfig={self._plane.folder / 'kwok.conf'}",
            "--manage-all-nodes=false",
            f"--manage-nodes-with-annotation-selector={_MARK}=fake",
            f"--node-lease-duration-seconds={self._plane.lost_after_s * 4 // 5}",
            "--cidr=10.200.0.0/14",
            f"--server-address=127.0.0.1:{free_port()}",
        )


def _node(name: str, size: dict[str, str], *, tainted: bool) -> Document:
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "type": "kwok"}
    taint = {"key": _MARK, "value": "fake", "effect": "NoSchedule"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {_MARK: "fake"}},
        "spec": {"taints": [taint] if tainted else []},
        "status": {"allocatable": size, "capacity": size, "nodeInfo": dict.fromkeys(_INFO, "")},
    }
