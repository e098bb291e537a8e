"""State of a Kubernetes cluster as ``carpool doctor --kubernetes`` checks it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaler.planning.placement import Node

__all__ = ["Autoscaler", "ClusterState"]


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """An object other than the scaler that sets the replicas of a Deployment."""

    kind: str
    namespace: str
    name: str
    target: str


@dataclass(frozen=True, slots=True)
class ClusterState:
    """State of a cluster for the checks.

    Attributes:
        autoscalers: Autoscalers of Deployments.
        namespaces: Why a namespace is not one for functions, by name; without those that are.
        refusals: Functions whose pods are not admitted, with the message.
        nodes: The nodes with the capacity that is left for these functions; None if unknown.
        missing_rights: Accounts with a permission that they lack.
        unpinned: Nodes without exclusive cores for pods; empty if unknown.
    """

    autoscalers: tuple[Autoscaler, ...] = ()
    namespaces: dict[str, str] = field(default_factory=dict)
    refusals: tuple[tuple[str, str], ...] = ()
    nodes: tuple[Node, ...] | None = None
    missing_rights: tuple[tuple[str, str], ...] = ()
    unpinned: tuple[str, ...] = ()
