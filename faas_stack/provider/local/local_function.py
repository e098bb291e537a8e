"""A function whose instances run on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faas_stack.provider.function import Function

if TYPE_CHECKING:
    from collections.abc import Mapping

    from faas_stack.provider.deployment import Deployment
    from faas_stack.provider.local.journal import Entry
    from faas_stack.provider.local.replica_set import ReplicaSet
    from faas_stack.provider.replica import Replica

__all__ = ["LocalFunction"]


class LocalFunction(Function):
    """A deployed function, with the replicas that run it."""

    def __init__(self, entry: Entry, replica_set: ReplicaSet) -> None:
        super().__init__(entry.deployment, entry.replicas, entry.created)
        self.replica_set = replica_set

    @property
    def running(self) -> list[Replica]:
        """The function's replicas."""
        return self.replica_set.replicas

    @property
    def remarks(self) -> Mapping[str, Any]:
        """How the replicas are held to their limits, as ``partition``; empty if they are not."""
        confined = self.replica_set.confined
        return {"partition": confined} if confined else {}

    def update(self, deployment: Deployment, as_run: Deployment, replicas: int) -> None:
        """Change to another deployment, which is ``as_run`` with the scaler's additions."""
        self.become(deployment)
        self.replicas = replicas
        self.replica_set.update(as_run, replicas)
