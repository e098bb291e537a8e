"""The servers of a cluster, from its nodes and the pods on them, as the API server lists them.

A node offers its allocatable resources, less the requests of pods that are not instances of a plan:
daemon sets, fronts, unrelated workloads. Instances are left out, because the planner places them
itself. Nodes that would not accept an instance are no servers: cordoned, lost, being deleted, or
with a taint against pods that do not tolerate it.

GPUs are those that the device plugin advertises as ``nvidia.com/gpu``. If it divides each of them
into replicas (MPS, time slicing), the node's label ``nvidia.com/gpu.replicas`` gives their number,
and these are the GPU's slots.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from scaler.planning.placement import Node

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["GPU", "NO_SERVER", "nodes_of", "quantity", "taken_by", "unusable"]

GPU = "nvidia.com/gpu"
_REPLICAS = "nvidia.com/gpu.replicas"
_REFUSING = ("NoSchedule", "NoExecute")
_OVER = ("Succeeded", "Failed")
_BYTES_PER_MB = 1e6
_LEAST_CPU = 1e-6  # the smallest number of cores that planning knows
# An empty list would mean unknown servers, and so unlimited capacity.
NO_SERVER = Node("none", _LEAST_CPU)

_EXPONENTS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_FACTORS = {
    **{suffix: 10.0**exponent for suffix, exponent in _EXPONENTS.items()},
    **{f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", start=1)},
}


def nodes_of(
    nodes: Iterable[Mapping[str, Any]],
    taken: Mapping[str, Mapping[str, float]],
    *,
    gpu: str = GPU,
    gpu_slots: int = 0,
) -> tuple[Node, ...]:
    """Return the servers available for instances.

    Args:
        nodes: Nodes as listed.
        taken: Requests of pods that are not instances of a plan (`taken_by`).
        gpu: Resource name of a GPU, or of a share of one.
        gpu_slots: Number of such shares per GPU; 0 to use each node's label, or one.

    Returns:
        Servers in the order of the list; if there are none, one on which nothing fits.
    """
    usable = [node for node in nodes if not unusable(node)]
    servers = (
        _server(node, taken.get(_name(node), {}), gpu, gpu_slots or _slots(node)) for node in usable
    )
    return tuple(server for server in servers if server) or (NO_SERVER,)


def unusable(node: Mapping[str, Any]) -> str:
    """Return why a node accepts no instance; empty if it does."""
    metadata, spec = node.get("metadata") or {}, node.get("spec") or {}
    if metadata.get("deletionTimestamp"):
        return "is being deleted"
    if spec.get("unschedulable"):
        return "is cordoned"
    conditions = (node.get("status") or {}).get("conditions") or ()
    if not any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
        return "is lost or not ready"
    for taint in spec.get("taints") or ():
        if taint.get("effect") in _REFUSING:
            return f"has the taint {taint['key']}"
    return ""


def taken_by(pods: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the requests of pods by node and resource, in cores, bytes and pieces."""
    taken: dict[str, dict[str, float]] = {}
    for pod in pods:
        spec = pod.get("spec") or {}
        node, phase = spec.get("nodeName"), (pod.get("status") or {}).get("phase")
        if node and phase not in _OVER:
            taken[node] = _sum([taken.get(node, {}), _asked(spec)])
    return taken


def _asked(spec: Mapping[str, Any]) -> dict[str, float]:
    """Return a pod's requests: all its containers together, or an init container if larger."""
    before = spec.get("initContainers") or ()
    beside = [each for each in before if each.get("restartPolicy") == "Always"]
    together = _sum(_requests(each) for each in (*(spec.get("containers") or ()), *beside))
    for container in before:
        for resource, amount in _requests(container).items():
            together[resource] = max(amount, together.get(resource, 0.0))
    return _sum([together, _amounts(spec.get("overhead"))])


def _requests(container: Mapping[str, Any]) -> dict[str, float]:
    return _amounts((container.get("resources") or {}).get("requests"))


def _amounts(quantities: Mapping[str, Any] | None) -> dict[str, float]:
    return {resource: quantity(amount) for resource, amount in (quantities or {}).items()}


def _sum(several: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for amounts in several:
        for resource, amount in amounts.items():
            total[resource] = total.get(resource, 0.0) + amount
    return total


def _server(
    node: Mapping[str, Any], taken: Mapping[str, float], gpu: str, slots: int
) -> Node | None:
    """Return what is left of a node; None if it has no capacity for an instance."""
    allocatable = (node.get("status") or {}).get("allocatable") or {}

    def left(resource: str) -> float:
        return quantity(allocatable.get(resource, 0)) - taken.get(resource, 0.0)

    cpu, memory_mb, gpus = left("cpu"), left("memory") / _BYTES_PER_MB, int(left(gpu) // slots)
    if cpu < _LEAST_CPU or memory_mb <= 0:
        return None
    return Node(_name(node), cpu, max(0, gpus), memory_mb, slots)


def _slots(node: Mapping[str, Any]) -> int:
    """Return the number of shares per GPU by the node's label; 1 without the label."""
    label = ((node.get("metadata") or {}).get("labels") or {}).get(_REPLICAS, "")
    return max(1, int(label)) if label.isascii() and label.isdecimal() else 1


def _name(node: Mapping[str, Any]) -> str:
    return str((node.get("metadata") or {}).get("name", ""))


def quantity(text: object) -> float:
    """Return the value of a quantity: ``100m`` cores, ``2Gi`` of memory, ``1e3``.

    Raises:
        ValueError: The text is not a quantity.
    """
    quantity_text = str(text).strip()
    digits = quantity_text.rstrip("numkKMGTPEi")
    factor = _FACTORS.get(quantity_text[len(digits) :])
    number = float(digits) if factor else math.nan
    if factor is None or not math.isfinite(number):
        message = f"{quantity_text!r}: expected a quantity such as 500m or 2Gi"
        raise ValueError(message)
    return number * factor
