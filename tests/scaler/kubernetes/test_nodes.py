"""The servers of a plan, from listed nodes and pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from carpool.latency import Resources
from scaler.kubernetes.nodes import nodes_of, quantity, taken_by, unusable
from scaler.planning.placement import Cluster, Node

if TYPE_CHECKING:
    from collections.abc import Sequence

GIB_MB = 1024**3 / 1e6
TAINT = {"key": "gpu", "value": "only", "effect": "NoSchedule"}


def node(name: str = "n", **spec: Any) -> dict[str, Any]:
    """Return a node of four cores and 8 GiB as the API server lists it."""
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
    """Return the node with GPUs, each divided into ``replicas``."""
    listed["status"]["allocatable"]["nvidia.com/gpu"] = str(count * (replicas or 1))
    if replicas:
        listed["metadata"]["labels"]["nvidia.com/gpu.replicas"] = str(replicas)
    return listed


def pod(on: str = "n", phase: str = "Running", **requests: str) -> dict[str, Any]:
    """Return a pod with these resource requests."""
    named = {key.replace("gpu", "nvidia.com/gpu"): amount for key, amount in requests.items()}
    container = {"name": "c", "resources": {"requests": named}}
    return {"spec": {"nodeName": on, "containers": [container]}, "status": {"phase": phase}}


def servers(nodes: list[Any], pods: Sequence[Any] = (), **options: Any) -> tuple[Node, ...]:
    """Return the servers that these nodes are beside these pods."""
    return nodes_of(nodes, taken_by(pods), **options)


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
    """Quantities are read in every form that Kubernetes writes."""
    assert pytest.approx(expected) == quantity(text)


@pytest.mark.parametrize("text", ["", "m", "4 cores", "1Gb", "nan", "inf", "1mm"])
def test_invalid_quantities_are_refused(text: str) -> None:
    """Texts that are no quantity are refused."""
    with pytest.raises(ValueError, match=r"expected a quantity|could not convert"):
        quantity(text)


def test_server_has_allocatable_resources_of_node() -> None:
    """A server has what its node can allocate, which is less than the node's capacity."""
    assert (Node("n", 4.0, 0, 8 * GIB_MB, 1),) == servers([node()])


def test_requests_of_other_pods_reduce_capacity() -> None:
    """Active pods reduce the capacity of their node; finished and unassigned ones do not."""
    others = [
        pod(cpu="500m", memory="1Gi"),
        pod(cpu="250m"),
        pod(on="m", cpu="3"),
        pod(phase="Succeeded", cpu="4"),
        pod(phase="Failed", cpu="4"),
        {"spec": {"containers": []}, "status": {"phase": "Pending"}},
    ]
    first, second = servers([node(), node("m")], others)
    assert (3.25, 1.0) == (first.cpu, second.cpu)
    assert pytest.approx(7 * GIB_MB) == first.memory_mb


def test_pod_request_combines_containers_and_init_containers() -> None:
    """A pod's requests add up as for the scheduler, with init containers and overhead."""
    spec = pod(cpu="1")["spec"]
    spec["containers"] *= 2
    spec["initContainers"] = [
        {"resources": {"requests": {"cpu": "3"}}},
        {"resources": {"requests": {"cpu": "500m"}}, "restartPolicy": "Always"},
    ]
    spec["overhead"] = {"cpu": "100m"}
    (found,) = servers([node()], [{"spec": spec, "status": {"phase": "Running"}}])
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
def test_unusable_nodes_are_excluded(change: dict[str, Any], expected: str) -> None:
    """Cordoned, lost, tainted and deleted nodes are no servers, and the reason is given."""
    found = node() | change
    assert expected in unusable(found)
    assert bool(expected) == bool(unusable(found))
    assert bool(expected) == (servers([found])[0].name == "none")


def test_no_room_without_usable_nodes() -> None:
    """Without a usable node there is no room; an empty list of servers would be unlimited."""
    for listed in ([], [node(unschedulable=True)]):
        cluster = Cluster(servers(listed))
        assert 0 == cluster.place_up_to(Resources(0.001), 1)


def test_a_full_node_has_no_room() -> None:
    """A node whose cores or memory other pods have requested in full is no server."""
    assert ["none"] == [each.name for each in servers([node()], [pod(cpu="4")])]
    assert ["m"] == [each.name for each in servers([node(), node("m")], [pod(memory="9Gi")])]


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
def test_gpus_have_advertised_slots(
    count: int, replicas: int, taken: int, expected: tuple[int, int]
) -> None:
    """A GPU has the advertised slots, or one; GPUs used in part by other pods do not count."""
    listed = gpus(node(), count, replicas)
    (found,) = servers([listed], [pod(gpu=str(taken))] if taken else [])
    assert expected == (found.gpus, found.gpu_slots)


def test_gpu_resource_name_and_slots_can_be_set() -> None:
    """Resource name and slots of GPUs can be set for nodes without a label."""
    listed = node()
    listed["status"]["allocatable"]["nvidia.com/gpu.shared"] = "8"
    (found,) = servers([listed], gpu="nvidia.com/gpu.shared", gpu_slots=4)
    assert (2, 4) == (found.gpus, found.gpu_slots)


def test_shares_are_placed_in_slots() -> None:
    """A share of 40 % takes two of four slots, so two GPUs hold four such instances."""
    cluster = Cluster(servers([gpus(node(), 2, 4)]))
    assert 4 == cluster.place_up_to(Resources(0.1, 40), 99)
