"""A function whose instances are this machine's."""

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
    """One deployed function, with the replicas that run it."""

    def __init__(self, entry: Entry, replica_set: ReplicaSet) -> None:
        super().__init__(entry.deployment, entry.replicas, entry.created)
        self.replica_set = replica_set

    @property
    def running(self) -> list[Replica]:
        """Its replicas."""
        return self.replica_set.replicas

    @property
    def remarks(self) -> Mapping[str, Any]:
        """What holds its replicas to their limits."""
        confined = self.replica_set.confined
        return {"partition": confined} if confined else {}

    def update(self, deployment: Deployment, as_run: Deployment, replicas: int) -> None:
        """Become another deployment, which the scaler's additions make ``as_run``."""
        self.become(deployment)
        self.replicas = replicas
        self.replica_set.update(as_run, replicas)
