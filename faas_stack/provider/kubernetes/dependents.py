"""Creates and updates the objects that a function's Deployment owns; leaves all others alone."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from carpool.errors import Conflict
from faas_stack.provider.kubernetes.api_errors import Forbidden
from faas_stack.provider.kubernetes.api_server import METADATA, collection
from faas_stack.provider.kubernetes.manifests import dependents
from faas_stack.provider.kubernetes.names import MANAGED

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from faas_stack.provider.deployment import Deployment
    from faas_stack.provider.kubernetes.api_server import ApiServer
    from faas_stack.provider.kubernetes.options import KubernetesOptions

__all__ = ["Dependents"]

log = logging.getLogger(__name__)

_BUDGET = "PodDisruptionBudget"
_KINDS = {
    "Service": "v1/services",
    "Secret": "v1/secrets",
    _BUDGET: "policy/v1/poddisruptionbudgets",
}


class Dependents:
    """The objects that Deployments own.

    Args:
        api: API of the cluster.
        options: How functions are run.
    """

    def __init__(self, api: ApiServer, options: KubernetesOptions) -> None:
        self._api = api
        self._options = options

    async def apply(self, deployment: Deployment, stored: Mapping[str, Any]) -> None:
        """Create or update the objects of a Deployment, given as stored.

        Functions also run without a disruption budget, which earlier roles do not permit.

        Raises:
            Conflict: An object of that name does not belong to a function.
            CarpoolError: The cluster refuses an object; the message says why.
        """
        for document in dependents(deployment, stored["metadata"], self._options):
            try:
                await self._apply(document, deployment.namespace)
            except Forbidden as error:
                if document["kind"] != _BUDGET:
                    raise
                log.warning("carpool: no %s for %s: %s", _BUDGET, deployment.service, error)

    async def check_ours(self, kind: str, namespace: str, name: str) -> None:
        """Refuse to touch an object that was not created for a function.

        Raises:
            Conflict: The object exists and does not belong to a function.
        """
        there = await self._api.find(collection(kind, namespace, name), METADATA)
        if there and MANAGED.items() - there["metadata"].get("labels", {}).items():
            message = (
                f"{kind} {name!r} exists in namespace {namespace!r} and does not belong to a "
                "function"
            )
            raise Conflict(message)

    async def _apply(self, document: dict[str, Any], namespace: str) -> None:
        kind, name = _KINDS[document["kind"]], document["metadata"]["name"]
        await self.check_ours(kind, namespace, name)
        await self._api.apply(collection(kind, namespace, name), document)
