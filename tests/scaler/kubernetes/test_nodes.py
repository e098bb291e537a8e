"""Nodes and pods as listed, and the servers that they are for a plan."""

from __future__ import annotations

from typing import Any

import pytest

from carpool.latency import Resources
from scaler.kubernetes.nodes import nodes_of, unusable
from scaler.kubernetes.quantities import quantity
from scaler.planning.placement import Cluster, Node

GIB_MB = 1024**3 / 1e6
TAINT = {"key": "gpu", "value": "only", "effect": "NoSchedule"}


def node(name: str = "n", **spec: Any) -> dict[str, Any]:
    """A node of four cores and 8 GiB, as the API server lists it."""
    return {
        "metadata": {"name": name, "labels": {}},
        "spec": spec,
        "status": {
            "capacity": {"cpu": "5", "memory": "9Gi"},
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": "True"},
            ],
        },
    }


def gpus(listed: dict[str, Any], count: int, replicas: int = 0) -> dict[str, Any]:
    """The same node with GPUs, each in so many replicas."""
    listed["status"]["allocatable"]["nvidia.com/gpu"] = str(count * (replicas or 1))
    if replicas:
        listed["metadata"]["labels"]["nvidia.com/gpu.replicas"] = str(replicas)
    return listed


def pod(on: str = "n", phase: str = "Running", **requests: str) -> dict[str, Any]:
    """A pod that asks for something."""
    named = {key.replace("gpu", "nvidia.com/gpu"): amount for key, amount in requests.items()}
    container = {"name": "c", "resources": {"requests": named}}
    return {"spec": {"nodeName": on, "containers": [container]}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4", 4),
        ("500m", 0.5),
        ("1500m", 1.5),
        ("8Gi", 8 * 1024**3),
        ("512Mi", 512 * 1024**2),
        ("2k", 2000),
        ("3M", 3e6),
        ("1e3", 1000),
        ("1E", 1e18),
        ("100n", 1e-7),
        ("0.5", 0.5),
        (2, 2),
    ],
)
def test_quantities_are_read(text: object, expected: float) -> None:
    """In every form that Kubernetes writes."""
    assert pytest.approx(expected) == quantity(text)


@pytest.mark.parametrize("text", ["", "m", "4 cores", "1Gb", "nan", "inf", "1mm"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    """By its value."""
    with pytest.raises(ValueError, match=r"expected a quantity|could not convert"):
        quantity(text)


def test_a_node_is_what_it_can_allocate() -> None:
    """Less than its capacity: the system's part is off already."""
    assert (Node("n", 4.0, 0, 8 * GIB_MB, 1),) == nodes_of([node()])


def test_what_other_pods_ask_for_is_taken_off() -> None:
    """Of the node that they are on; pods that have ended, or are nowhere yet, have nothing."""
    others = [
        pod(cpu="500m", memory="1Gi"),
        pod(cpu="250m"),
        pod(on="m", cpu="3"),
        pod(phase="Succeeded", cpu="4"),
        pod(phase="Failed", cpu="4"),
        {"spec": {"containers": []}, "status": {"phase": "Pending"}},
    ]
    first, second = nodes_of([node(), node("m")], others)
    assert (3.25, 1.0) == (first.cpu, second.cpu)
    assert pytest.approx(7 * GIB_MB) == first.memory_mb


def test_a_pod_asks_for_what_its_containers_do_together_or_an_earlier_one_alone() -> None:
    """As the scheduler counts, with what runs beside them, and the overhead of its runtime."""
    spec = pod(cpu="1")["spec"]
    spec["containers"] *= 2
    spec["initContainers"] = [
        {"resources": {"requests": {"cpu": "3"}}},
        {"resources": {"requests": {"cpu": "500m"}}, "restartPolicy": "Always"},
    ]
    spec["overhead"] = {"cpu": "100m"}
    (found,) = nodes_of([node()], [{"spec": spec, "status": {"phase": "Running"}}])
    assert pytest.approx(4 - 3 - 0.1) == found.cpu


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"spec": {"unschedulable": True}}, "cordoned"),
        ({"spec": {"taints": [TAINT]}}, "taint gpu"),
        ({"spec": {"taints": [{"key": "a", "effect": "PreferNoSchedule"}]}}, ""),
        ({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, "lost"),
        ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, "lost"),
        ({"status": {}}, "lost"),
        ({"metadata": {"name": "n", "deletionTimestamp": "now"}}, "deleted"),
        ({}, ""),
    ],
)
def test_nodes_that_take_no_instance_are_no_servers(change: dict[str, Any], expected: str) -> None:
    """Cordoned, lost, tainted and leaving ones; and it is said why."""
    found = node() | change
    assert expected in unusable(found)
    assert bool(expected) == bool(unusable(found))
    assert bool(expected) == (nodes_of([found])[0].name == "none")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "value": "only"}, True),
        ({"key": "gpu", "value": "only", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "value": "only", "effect": "NoExecute"}, False),
        ({"key": "gpu", "value": "other"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_functions_may_tolerate_a_taint(toleration: dict[str, Any], *, expected: bool) -> None:
    """As the scheduler holds tolerations against taints."""
    assert expected == (not unusable(node(taints=[TAINT]), [toleration]))


def test_without_a_usable_node_there_is_no_room() -> None:
    """Rather than room without end, which no servers at all would mean."""
    for listed in ([], [node(unschedulable=True)]):
        cluster = Cluster(nodes_of(listed))
        assert 0 == cluster.place_up_to(Resources(0.001), 1)


def test_a_full_node_has_no_room() -> None:
    """Others may have asked for all of it, and in memory for more than there is."""
    assert ["none"] == [each.name for each in nodes_of([node()], [pod(cpu="4")])]
    assert ["m"] == [each.name for each in nodes_of([node(), node("m")], [pod(memory="9Gi")])]


@pytest.mark.parametrize(
    ("count", "replicas", "taken", "expected"),
    [
        (2, 0, 0, (2, 1)),
        (2, 0, 1, (1, 1)),
        (2, 4, 0, (2, 4)),
        (2, 4, 3, (1, 4)),  # five slots are left: a GPU, and one that is not counted
        (0, 0, 0, (0, 1)),
    ],
)
def test_gpus_have_the_slots_that_are_advertised(
    count: int, replicas: int, taken: int, expected: tuple[int, int]
) -> None:
    """A GPU as a whole is one slot; what others have is off, and a GPU in part is not counted."""
    listed = gpus(node(), count, replicas)
    (found,) = nodes_of([listed], [pod(gpu=str(taken))] if taken else [])
    assert expected == (found.gpus, found.gpu_slots)


def test_a_gpu_may_have_another_name_and_slots_of_the_operators() -> None:
    """As the provider is told, where nodes have no label."""
    listed = node()
    listed["status"]["allocatable"]["nvidia.com/gpu.shared"] = "8"
    (found,) = nodes_of([listed], gpu="nvidia.com/gpu.shared", gpu_slots=4)
    assert (2, 4) == (found.gpus, found.gpu_slots)


def test_shares_are_placed_in_slots() -> None:
    """40 % takes two of four, so that a node of two GPUs has four such instances."""
    cluster = Cluster(nodes_of([gpus(node(), 2, 4)]))
    assert 4 == cluster.place_up_to(Resources(0.1, 40), 99)
