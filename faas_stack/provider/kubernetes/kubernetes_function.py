"""A function of the cluster: its deployment, its pods, and the calls that wait for one.

A call goes to the one of two randomly chosen ready pods that has fewer calls of this provider. With
several providers, each of which knows only its own calls, this spreads them nearly as well as if
each knew all, and they do not all choose the same pod.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from carpool.function_status import REASON
from faas_stack.provider.function import Function
from faas_stack.provider.kubernetes.pod_instance import PodInstance
from faas_stack.provider.replica import Replica
from faas_stack.provider.waiting_calls import WaitingCalls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from faas_stack.provider.kubernetes.manifests import StoredFunction
    from faas_stack.provider.kubernetes.pod_state import PodState

__all__ = ["KubernetesFunction"]

_BLOCKED = "the update waits for capacity for one more replica"
_ONLY_ONE = f"{_BLOCKED}; scale to 0 and back to update without it"
_CONNECT_S = 3.0  # a pod whose node is lost would not answer for minutes


class KubernetesFunction(Function):
    """A function of the cluster.

    Attributes:
        stored: The function as its Deployment stores it.
    """

    def __init__(self, stored: StoredFunction) -> None:
        super().__init__(stored.deployment, stored.replicas, stored.created)
        self.stored = stored
        self._replicas: dict[str, Replica] = {}
        self._pods: dict[str, PodInstance] = {}
        self._ready: list[Replica] = []
        # Anyone may call, so callers do not get the cluster's reasons.
        self._waiting = WaitingCalls(stored.deployment.service, self.choose, self._is_failing)

    @property
    def removed(self) -> bool:
        """Whether it has been removed."""
        return self._waiting.removed

    @property
    def running(self) -> Sequence[Replica]:
        """Its pods."""
        return list(self._replicas.values())

    @property
    def available(self) -> int:
        """Number of pods that can be sent requests."""
        return len(self._ready)

    @property
    def pods(self) -> list[PodState]:
        """Known state of its pods."""
        return [pod.state for pod in self._pods.values()]

    @property
    def reason(self) -> str:
        """Why it has too few ready pods or its update is blocked. Empty if neither is the case."""
        if self.available >= self.replicas and not self.blocked:
            return ""
        reasons = (
            f"{pod.name}: {pod.reason}" for pod in self.pods if pod.reason and not pod.leaving
        )
        why = self.stored.refusal or next(reasons, "")
        if not self.blocked:
            return why
        return f"{_BLOCKED if self.replicas > 1 else _ONLY_ONE}; {why}"

    @property
    def blocked(self) -> bool:
        """Whether an update waits for capacity that only its old pods have."""
        if len(self._pods) <= self.replicas:  # an update starts an additional pod
            return False
        newest = self.stored.revision
        live = [pod for pod in self.pods if not pod.leaving]
        unplaced = any(pod.unplaced and pod.revision == newest for pod in live)
        return unplaced and any(pod.ready and pod.revision != newest for pod in live)

    @property
    def remarks(self) -> Mapping[str, Any]:
        """Status fields with the reason why it is not ready, and how its GPU share was rounded."""
        remarks: dict[str, Any] = {}
        if reason := self.reason:
            remarks["annotations"] = {**self.deployment.annotations, REASON: reason}
        if rounded := self.stored.rounded:
            remarks["partition"] = rounded
        return remarks

    def update(self, stored: StoredFunction) -> None:
        """Update the function from its Deployment; ignore versions older than the known one."""
        if stored.version < self.stored.version:
            return
        self.stored = stored
        self.become(stored.deployment)
        self.replicas = stored.replicas
        self._changed()

    def pod_changed(self, state: PodState) -> None:
        """Record that a pod was added or has changed."""
        pod = self._pods.get(state.name)
        if pod is None:
            pod = self._pods[state.name] = PodInstance(state, self._changed)
            most = self.deployment.options.answer_max_bytes
            self._replicas[state.name] = Replica(pod, 0, most, _CONNECT_S)
        pod.update(state)
        self._replicas[state.name].draining = state.leaving
        self._changed()

    def pod_gone(self, name: str) -> None:
        """Record that a pod is gone, so that its calls will never be answered."""
        if pod := self._pods.pop(name, None):
            pod.close()
            self._replicas.pop(name).close()
            self._changed()

    def remove(self) -> None:
        """Mark it as removed: no further call gets a pod, and those that have one keep it."""
        self._waiting.removed = True
        self._changed()

    def close(self) -> None:
        """Remove it with its pods, as the provider stops or no longer follows it."""
        self.remove()
        for name in list(self._pods):
            self.pod_gone(name)

    async def acquire(self, patience_s: float, start: Callable[[], Awaitable[None]]) -> Replica:
        """Return a ready pod, waiting for one if there is none.

        Args:
            patience_s: Time limit.
            start: Starts the function if it is scaled to zero.

        Raises:
            Overloaded: If no pod became ready in time, or none will; the reason is only in status
                and logs, as calls are public.
            NotFound: If the function was removed meanwhile.
        """
        replica = await self._waiting.replica(patience_s, start)
        replica.acquire()
        self._pods[replica.instance.name].meet()
        return replica

    def choose(self) -> Replica | None:
        """Return the one of two random ready pods with less load. None if no pod is ready."""
        if not self._ready:
            return None
        pair = random.sample(self._ready, min(2, len(self._ready)))  # random order: ties are random
        return min(pair, key=lambda replica: replica.load)

    def _is_failing(self) -> bool:
        """Return whether no pod can start; those of an update that was just made may still come."""
        newest = self.stored.revision
        live = [pod for pod in self.pods if not pod.leaving and pod.revision == newest]
        return bool(live) and all(pod.failing for pod in live)

    def _changed(self) -> None:
        """Update the ready pods and wake all waiting calls."""
        ready = (replica for replica in self._replicas.values() if replica.ready)
        self._ready = [] if self.removed else list(ready)
        self._waiting.wake()
