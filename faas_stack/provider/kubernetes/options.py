"""Settings for running functions in a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from faas_stack.partition.resources import GPU_LIMIT
from faas_stack.provider.deployment import DEFAULT_NAMESPACE

__all__ = ["ClusterScaler", "KubernetesOptions"]


@dataclass(frozen=True, slots=True)
class ClusterScaler:
    """Address and token with which sidecars reach the scaler.

    Attributes:
        address: Address of the scaler as seen by the sidecars.
        token: Token of the scaler, from which each function's own token is derived.
    """

    address: str
    token: bytes


@dataclass(frozen=True, slots=True)
class KubernetesOptions:
    """Settings for running functions.

    Attributes:
        namespace: Namespace of functions that name none.
        user: Numeric user that functions run as; never 0.
        image_pull_policy: ``Always``, ``IfNotPresent`` or ``Never``; Kubernetes chooses if empty.
        gpu_resource: Resource name that nodes use for a GPU or a share of one.
        gpu_slots: Number of such shares per GPU.
        scheduler: Cluster scheduler that places functions' pods; the default one if empty.
        patience_s: Time that a call waits for a replica to become ready.
        capacity_patience_s: Time that an update waits for capacity for one more replica before it
            stops one of several first.
        scaler: The scaler that sets the number of instances of functions with a scaling policy;
            None if there is no scaler.
        prepull: Whether every node keeps the images of functions that may run on it.
    """

    namespace: str = DEFAULT_NAMESPACE
    user: int = 1000  # user of the images of Carpool's templates
    image_pull_policy: str = ""
    gpu_resource: str = GPU_LIMIT
    gpu_slots: int = 1
    scheduler: str = ""
    patience_s: float = 60.0
    capacity_patience_s: float = 60.0  # an autoscaler may add a node
    scaler: ClusterScaler | None = None
    prepull: bool = False
