"""How a provider runs functions in a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from faas_stack.partition.resources import GPU_LIMIT
from faas_stack.provider.deployment import DEFAULT_NAMESPACE

__all__ = ["ClusterScaler", "KubernetesOptions"]


@dataclass(frozen=True, slots=True)
class ClusterScaler:
    """How sidecars reach the scaler.

    Attributes:
        address: as they name it.
        token: of the scaler; each function is given one that is made of it.
    """

    address: str
    token: bytes


@dataclass(frozen=True, slots=True)
class KubernetesOptions:
    """How functions are run.

    Attributes:
        namespace: of functions that name none.
        user: the numeric user that functions run as; never 0.
        image_pull_policy: ``Always``, ``IfNotPresent`` or ``Never``; empty: Kubernetes chooses.
        gpu_resource: what nodes call a GPU, or a share of one.
        gpu_slots: how many such shares a GPU has.
        scheduler: which of the cluster's schedulers places functions' pods; empty: its default.
        patience_s: how long a call waits for a replica to become ready.
        capacity_patience_s: how long an update waits for room for one more replica, until one of
            several makes room.
        scaler: what decides how many instances functions with a scaling policy have; None: nobody.
        prepull: whether every node keeps the images of functions that may be on it.
    """

    namespace: str = DEFAULT_NAMESPACE
    user: int = 1000  # of the images that Carpool's templates make
    image_pull_policy: str = ""
    gpu_resource: str = GPU_LIMIT
    gpu_slots: int = 1
    scheduler: str = ""
    patience_s: float = 60.0
    capacity_patience_s: float = 60.0  # an autoscaler's node may come
    scaler: ClusterScaler | None = None
    prepull: bool = False
