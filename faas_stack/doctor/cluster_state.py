"""What a Kubernetes cluster says of itself, as ``carpool doctor --kubernetes`` examines it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaler.planning.placement import Node

__all__ = ["Autoscaler", "ClusterState"]


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """What sets the replicas of a Deployment, beside the scaler."""

    kind: str
    namespace: str
    name: str
    target: str


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What the checks look at.

    Attributes:
        autoscalers: those that scale Deployments.
        namespaces: why one of functions is none, by its name; those that are one are left out.
        refusals: what was said to the pods that are not admitted, by function.
        nodes: the servers, with what is left of them for these functions.
        missing_rights: of an account, what it may not do.
        unpinned: nodes that give no pod cores of its own; empty where unknown.
    """

    autoscalers: tuple[Autoscaler, ...] = ()
    namespaces: dict[str, str] = field(default_factory=dict)
    refusals: tuple[tuple[str, str], ...] = ()
    nodes: tuple[Node, ...] = ()
    missing_rights: tuple[tuple[str, str], ...] = ()
    unpinned: tuple[str, ...] = ()
