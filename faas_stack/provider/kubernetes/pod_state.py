"""The state of an instance, read from its pod's object. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from faas_stack.provider.container_environment import PORT
from faas_stack.provider.kubernetes.names import ID, REVISION

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DELETION_COST", "PodState", "read_pod"]

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
# Reasons for waiting that do not end by themselves: the pod needs a change to become ready.
_HOPELESS = frozenset(
    (
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    )
)
_STARTING = ("ContainerCreating", "PodInitializing")
_NODE_LOST = "NodeNotReady: its node does not respond"


@dataclass(frozen=True, slots=True)
class PodState:
    """State of an instance.

    Attributes:
        name: Name of the pod.
        id: ID of the function's Deployment.
        address: Address for requests; empty if there is none yet.
        ready: Whether requests can be sent to it.
        leaving: Whether it was told to end, or has ended.
        failing: Whether it cannot start in its present form.
        reason: Why it is not ready, according to Kubernetes; empty if unknown.
        restarts: Number of restarts of its container.
        deletion_cost: Its deletion cost, by which Kubernetes chooses pods to remove first.
        revision: Revision of the deployment that it was created from.
        unplaced: Whether no node has capacity for it.
    """

    name: str
    id: str
    address: str = ""
    ready: bool = False
    leaving: bool = False
    failing: bool = False
    reason: str = ""
    restarts: int = 0
    deletion_cost: str = ""
    revision: str = ""
    unplaced: bool = False


def read_pod(pod: Mapping[str, Any]) -> PodState:
    """Return the state of the instance in a pod.

    Raises:
        KeyError: The pod does not belong to a function.
    """
    metadata, status = pod["metadata"], pod.get("status", {})
    conditions = {condition["type"]: condition for condition in status.get("conditions", ())}
    container: Mapping[str, Any] = next(iter(status.get("containerStatuses", ())), {})
    ip = status.get("podIP", "")
    leaving = "deletionTimestamp" in metadata or status.get("phase") in ("Succeeded", "Failed")
    ready = conditions.get("Ready", {}).get("status") == "True"
    waiting = container.get("state", {}).get("waiting", {})
    annotations = metadata.get("annotations", {})
    return PodState(
        name=metadata["name"],
        id=metadata["labels"][ID],
        address=_address(ip),
        ready=ready and bool(ip) and not leaving,
        leaving=leaving,
        failing=waiting.get("reason") in _HOPELESS,
        reason="" if ready else _reason(pod, conditions, container, waiting),
        restarts=container.get("restartCount", 0),
        deletion_cost=annotations.get(DELETION_COST, ""),
        revision=annotations.get(REVISION, ""),
        unplaced=conditions.get("PodScheduled", {}).get("reason") == "Unschedulable",
    )


def _address(ip: str) -> str:
    if not ip:
        return ""
    return f"[{ip}]:{PORT}" if ":" in ip else f"{ip}:{PORT}"


def _is_on_lost_node(pod: Mapping[str, Any], conditions: Mapping[str, Mapping[str, str]]) -> bool:
    """Return whether Kubernetes made a pod unready because its node is silent.

    Then the kubelet's last report, that the containers are ready, is still there. A pod with
    readiness gates may look the same on a working node, so it is never counted as lost.
    """
    contained = conditions.get("ContainersReady", {}).get("status") == "True"
    return contained and not pod.get("spec", {}).get("readinessGates")


def _reason(
    pod: Mapping[str, Any],
    conditions: Mapping[str, Mapping[str, str]],
    container: Mapping[str, Any],
    waiting: Mapping[str, str],
) -> str:
    """Return the reason given by scheduler, node, image pull or the container's last end."""
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return _joined(scheduled.get("reason", ""), scheduled.get("message", ""))
    if _is_on_lost_node(pod, conditions):
        return _NODE_LOST
    ended = container.get("lastState", {}).get("terminated", {})
    last = f"ended with {ended.get('exitCode')} ({ended.get('reason')})" if ended else ""
    if waiting.get("reason", "ContainerCreating") not in _STARTING:
        return _joined(waiting["reason"], last or waiting.get("message", ""))
    return last


def _joined(reason: str, message: str) -> str:
    return f"{reason}: {message}" if message else reason
