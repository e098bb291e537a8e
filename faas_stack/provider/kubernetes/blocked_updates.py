"""Unblocks updates that wait for capacity that only their old pods have, by giving up one of them.

An update starts a new pod before an old one is told to end. On a full cluster, there is no capacity
for the new one, and the update would wait forever. A cluster's autoscaler gets some time to add a
node; then the Deployment may have one pod fewer than it should, until the next update. A function
with one replica is left alone, as it would have none. All providers see the same pods, so any of
them does this.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from carpool.errors import CarpoolError
from faas_stack.provider.kubernetes.api_server import collection
from faas_stack.provider.kubernetes.manifests import read_function, set_missing_pods
from faas_stack.provider.kubernetes.names import object_name
from faas_stack.provider.kubernetes.namespace import DEPLOYMENTS

if TYPE_CHECKING:
    from faas_stack.provider.kubernetes.api_server import ApiServer
    from faas_stack.provider.kubernetes.kubernetes_function import KubernetesFunction
    from faas_stack.provider.kubernetes.namespaces import Namespaces

__all__ = ["BlockedUpdates"]

log = logging.getLogger(__name__)

_LOOK_S = 1.0  # interval of checking the known state, without a request


class BlockedUpdates:
    """Unblocks updates for which there is no capacity.

    Args:
        api: API of the cluster.
        namespaces: Namespaces of functions.
        patience_s: How long to wait for capacity before giving up a pod.
    """

    def __init__(self, api: ApiServer, namespaces: Namespaces, patience_s: float) -> None:
        self._api = api
        self._namespaces = namespaces
        self._patience_s = patience_s
        self._since: dict[str, float] = {}

    async def run(self) -> None:
        """Check for blocked updates periodically until cancelled."""
        while True:
            try:
                await self.look()
            except Exception:  # an error of one function; others may still wait for capacity
                log.exception("carpool: a check for blocked updates failed")
            await asyncio.sleep(_LOOK_S)

    async def look(self) -> None:
        """Unblock updates that have waited long enough; failures are retried at the next check."""
        now = time.monotonic()
        functions = [
            function
            for namespace in self._namespaces
            for function in namespace.functions.values()
            if function.replicas > 1 and not function.stored.gives_way and function.blocked
        ]
        self._since = {f.stored.uid: self._since.get(f.stored.uid, now) for f in functions}
        for function in functions:
            if now - self._since[function.stored.uid] >= self._patience_s:
                await self._free_capacity(function)

    async def _free_capacity(self, function: KubernetesFunction) -> None:
        name, namespace = function.deployment.service, function.deployment.namespace
        path = collection(DEPLOYMENTS, namespace, object_name(name))
        try:
            live = await self._api.get(path)
            now = read_function(live)
            if now.replicas <= 1 or now.gives_way:  # local state may be outdated
                return
            set_missing_pods(live, 1)
            await self._api.replace(path, live)
        except CarpoolError as error:  # it was changed or removed meanwhile
            log.debug("carpool: function %s: %s", name, error)
        else:
            log.warning(
                "carpool: function %s is updated with one replica fewer, because there is no "
                "capacity for another",
                name,
            )
