"""When INFaaS would add a server."""

from __future__ import annotations

from collections import Counter

from carpool.latency import Resources
from scaler.planning.placement import Cluster, Node
from scaler.policies.infaas.node_rules import instance_advice, server_advice


def filled(*cores: float) -> Cluster:
    """Servers of ten cores and a GPU, with so many cores taken on each."""
    cluster = Cluster([Node(f"n{n}", 10.0, 1) for n in range(len(cores))])
    for node, taken in enumerate(cores):
        if taken:
            cluster.place(Resources(taken, 0.0, 0.0), node)
    return cluster


def test_a_resource_that_is_short_on_every_server() -> None:
    """More than 80 % of it on all of them; one with room is enough."""
    assert [] == server_advice(filled(9.0, 8.0))
    assert ["cores are used by 85% or more on all 2 servers"] == [
        advice.removeprefix("Add a server: ").removesuffix(" that have any.")
        for advice in server_advice(filled(9.0, 8.5))
    ]
    assert [] == server_advice(None)


def test_gpus_are_counted_where_there_are_any() -> None:
    """A server without one is no server with room on it."""
    cluster = Cluster([Node("g", 10.0, 1), Node("c", 10.0)])
    cluster.place(Resources(1.0, 90.0, 0.0), 0)
    assert ["Add a server: GPUs are used by 90% or more on the only server that has any."] == (
        server_advice(cluster)
    )


def test_one_kind_of_hardware_interfered_with_throughout() -> None:
    """All instances on it; another kind that is well does not help."""
    states = {"GPU": Counter(interfered=2), "core": Counter(active=3, interfered=1)}
    assert [
        "Add a server with GPUs: all 2 instances on one are interfered with."
    ] == instance_advice(states)


def test_most_instances_overloaded() -> None:
    """More than 80 % of them."""
    assert [] == instance_advice({"core": Counter(overloaded=4, active=1)})
    assert ["Add a server: 9 of 10 instances are overloaded."] == instance_advice(
        {"core": Counter(overloaded=9, active=1)}
    )
    assert [] == instance_advice({})
