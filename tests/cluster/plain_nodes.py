"""Nodes and pods that exist only as objects, without a kubelet or kwok."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.cluster.cluster import Cluster

__all__ = ["make_node", "make_pod"]


def make_node(cluster: Cluster, name: str, gpus: str) -> None:
    """Create a ready node of four cores and 8 GiB, with ``gpus`` GPUs or shares of them."""
    cluster.make("/api/v1/nodes", {"metadata": {"name": name}})
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110", "nvidia.com/gpu": gpus}
    ready = [{"type": "Ready", "status": "True", "reason": "Test", "message": ""}]
    status = {"capacity": amounts, "allocatable": amounts, "conditions": ready}
    cluster.api.patch(f"/api/v1/nodes/{name}/status", {"status": status})
    # A controller takes away the taint of a node that is not ready yet, and here is none.
    cluster.api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})


def make_pod(
    cluster: Cluster,
    namespace: str,
    node: str,
    cpu: str,
    labels: dict[str, Any],
    phase: str = "Pending",
) -> None:
    """Create a pod on a node; nothing runs it."""
    resources = {"requests": {"cpu": cpu}}
    containers = [{"name": "c", "image": "i", "resources": resources}]
    metadata = {"generateName": "pod-", "labels": labels}
    document = {"metadata": metadata, "spec": {"nodeName": node, "containers": containers}}
    path = f"/api/v1/namespaces/{namespace}/pods"
    made = cluster.api.post(path, document)["metadata"]["name"]
    cluster.api.patch(f"{path}/{made}/status", {"status": {"phase": phase}})
