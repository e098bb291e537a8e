"""The functions of one namespace, by watching its Deployments and pods."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from faas_stack.provider.kubernetes.api_server import collection
from faas_stack.provider.kubernetes.kubernetes_function import KubernetesFunction
from faas_stack.provider.kubernetes.manifests import StoredFunction, read_function
from faas_stack.provider.kubernetes.names import SELECTOR
from faas_stack.provider.kubernetes.pod_state import PodState, read_pod
from faas_stack.provider.kubernetes.watch import Watch

if TYPE_CHECKING:
    from faas_stack.provider.kubernetes.api_server import ApiServer

__all__ = ["DEPLOYMENTS", "PODS", "NamespaceFunctions"]

DEPLOYMENTS = "apps/v1/deployments"
PODS = "v1/pods"


class NamespaceFunctions:
    """Functions of a namespace, kept in sync with the API server.

    Attributes:
        name: Name of the namespace.
        functions: Functions by name.
        listed: Whether all functions are known.
        watches: The watches of the namespace.
    """

    def __init__(self, api: ApiServer, name: str) -> None:
        self.name = name
        self.functions: dict[str, KubernetesFunction] = {}
        self.listed = False
        self._by_id: dict[str, KubernetesFunction] = {}
        self._pods: dict[str, PodState] = {}
        self._removed: set[str] = set()
        self._deployments = Watch(api, collection(DEPLOYMENTS, name), SELECTOR, read_function)
        self._pod_watch = Watch(api, collection(PODS, name), SELECTOR, _pod)
        self.watches: dict[str, Watch[Any]] = {
            "deployments": self._deployments,
            "pods": self._pod_watch,
        }
        self._tasks: list[asyncio.Task[None]] = []
        self._closed = False

    async def open(self) -> None:
        """List the namespace's functions and watch them from then on.

        Raises:
            CarpoolError: If the API server refuses or cannot be reached; watching is retried.
        """
        try:
            # Each list is passed on when it arrives; from then on the watch follows changes.
            self._deployments_listed(await self._deployments.first())
            self._pods_listed(await self._pod_watch.first())
        finally:
            if not self._closed:
                self._follow()

    def _follow(self) -> None:
        works = (
            self._deployments.follow(self._deployments_listed, self.stored, self._gone),
            self._pod_watch.follow(self._pods_listed, self._pod_changed, self._pod_gone),
        )
        self._tasks = [asyncio.get_running_loop().create_task(work) for work in works]

    async def close(self) -> None:
        """Stop watching; its functions no longer belong to this provider."""
        self._closed = True  # listings may still be in progress
        for function in list(self._by_id.values()):
            function.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def stored(self, stored: StoredFunction) -> KubernetesFunction:
        """Add or update the function of a Deployment; ignore versions older than the known one."""
        service = stored.deployment.service
        known = self.functions.get(service)
        if known and known.stored.uid == stored.uid:
            known.update(stored)
            return known
        function = KubernetesFunction(stored)
        if stored.uid in self._removed:
            return function
        if known:
            self._drop(known)
        self.functions[service] = self._by_id[stored.id] = function
        for pod in self._pods.values():
            if pod.id == stored.id:
                function.pod_changed(pod)
        return function

    def removed(self, function: KubernetesFunction) -> None:
        """Record that this provider has deleted a function, to ignore stale events of it."""
        self._removed.add(function.stored.uid)
        self._drop(function)

    def _drop(self, function: KubernetesFunction) -> None:
        """Remove a function; its pods are watched until they have ended."""
        if self.functions.get(function.deployment.service) is function:
            del self.functions[function.deployment.service]
        function.remove()
        self._forget(function)

    def _forget(self, function: KubernetesFunction) -> None:
        if function.removed and not function.pods:
            self._by_id.pop(function.stored.id, None)

    def _deployments_listed(self, listed: list[StoredFunction]) -> None:
        if self._closed:
            return
        self.listed = True
        there = {each.uid for each in listed}
        for function in list(self.functions.values()):
            if function.stored.uid not in there:
                self._drop(function)
        self._removed &= there
        for each in listed:
            self.stored(each)

    def _gone(self, stored: StoredFunction) -> None:
        self._removed.discard(stored.uid)
        function = self.functions.get(stored.deployment.service)
        if function and function.stored.uid == stored.uid:
            self._drop(function)

    def _pods_listed(self, listed: list[PodState]) -> None:
        if self._closed:
            return
        there = {each.name for each in listed}
        for name in self._pods.keys() - there:
            self._pod_gone(self._pods[name])
        for each in listed:
            self._pod_changed(each)

    def _pod_changed(self, state: PodState) -> None:
        self._pods[state.name] = state
        if function := self._by_id.get(state.id):
            function.pod_changed(state)

    def _pod_gone(self, state: PodState) -> None:
        self._pods.pop(state.name, None)
        if function := self._by_id.get(state.id):
            function.pod_gone(state.name)
            self._forget(function)


def _pod(pod: dict[str, Any]) -> PodState | None:
    try:
        return read_pod(pod)
    except KeyError:
        return None
