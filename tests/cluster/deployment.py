"""Deployments that tests create themselves, without a provider."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cluster.api import Document, is_true

if TYPE_CHECKING:
    from tests.cluster.cluster import Cluster

__all__ = ["deployment", "ready_pods"]


def deployment(name: str, image: str, *, replicas: int = 1, **env: str) -> Document:
    """Return a Deployment of a Carpool function's image, with the strictest pod security."""
    container = {
        "name": "function",
        "image": image,
        "imagePullPolicy": "Never",
        "env": [{"name": key, "value": value} for key, value in env.items()],
        "ports": [{"containerPort": 8080}],
        "readinessProbe": {
            "httpGet": {"path": "/_/ready", "port": 8080},
            "periodSeconds": 1,
            "timeoutSeconds": 5,
        },
        "resources": {"requests": {"cpu": "100m", "memory": "200Mi"}},
        "securityContext": {
            "runAsUser": 1000,
            "runAsNonRoot": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    labels = {"faas_function": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [container],
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def ready_pods(cluster: Cluster, namespace: str) -> list[Document]:
    """Return the ready pods of a namespace."""
    pods = cluster.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return [pod for pod in pods if is_true(pod, "Ready")]
