"""Stage for the provider's stories in which instances are pods of a real cluster."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from faas_stack.provider.kubernetes.api_server import ApiServer, collection
from faas_stack.provider.kubernetes.names import SELECTOR
from faas_stack.provider.kubernetes.options import KubernetesOptions
from faas_stack.provider.kubernetes.orchestrator import KubernetesOrchestrator

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from faas_stack.provider.secrets import SecretStore
    from tests.cluster.cluster import Cluster

__all__ = ["NAMESPACES", "KubernetesStage"]

NAMESPACES = ("openfaas-fn", "team", "a-team")  # that stories deploy to
_KINDS = ("apps/v1/deployments", "v1/secrets")


class KubernetesStage:
    """Stage whose instances are pods; the objects of a story are removed when it ends.

    Args:
        cluster: cluster with a node that has the stories' image.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @asynccontextmanager
    async def open(
        self,
        folder: Path,  # noqa: ARG002 - as all stages
        secrets: SecretStore,  # noqa: ARG002
    ) -> AsyncIterator[ApiServer]:
        api = ApiServer.connect(self._cluster.kubeconfig)
        try:
            yield api
        finally:
            await _clear(ApiServer.connect(self._cluster.kubeconfig))

    def orchestrator(
        self,
        backend: ApiServer,
        secrets: SecretStore,  # noqa: ARG002 - as all stages
        *,
        grace_s: float,  # noqa: ARG002 - Kubernetes has its own
        **options: Any,
    ) -> KubernetesOrchestrator:
        """Return an orchestrator for all functions of the cluster."""
        return KubernetesOrchestrator(
            backend, KubernetesOptions(image_pull_policy="IfNotPresent", **options)
        )


async def _clear(api: ApiServer) -> None:
    for namespace in NAMESPACES:
        for kind in _KINDS:
            path = collection(kind, namespace)
            for name in await api.names(path, SELECTOR):
                await api.remove(f"{path}/{name}")
    await api.close()
