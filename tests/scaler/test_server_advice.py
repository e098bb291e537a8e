"""Conditions under which INFaaS would add a server."""

from __future__ import annotations

from collections import Counter

from carpool.latency import Resources
from carpool.server_advice import instance_advice, server_advice
from scaler.planning.placement import Cluster, Node


def filled(*cores: float) -> Cluster:
    """Return servers of ten cores and a GPU, with these numbers of used cores."""
    cluster = Cluster([Node(f"n{n}", 10.0, 1) for n in range(len(cores))])
    for node, taken in enumerate(cores):
        if taken:
            cluster.place(Resources(taken, 0.0, 0.0), node)
    return cluster


def test_server_is_advised_if_resource_is_short_on_every_server() -> None:
    """A server is advised if more than 80 % of a resource is in use on every server."""
    assert [] == server_advice(filled(9.0, 8.0))
    assert ["cores are used by 85% or more on all 2 servers"] == [
        advice.removeprefix("Add a server: ").removesuffix(" that have any.")
        for advice in server_advice(filled(9.0, 8.5))
    ]
    assert [] == server_advice(None)


def test_gpu_use_counts_only_servers_with_gpus() -> None:
    """Servers without GPUs do not count as servers with free GPUs."""
    cluster = Cluster([Node("g", 10.0, 1), Node("c", 10.0)])
    cluster.place(Resources(1.0, 90.0, 0.0), 0)
    assert ["Add a server: GPUs are used by 90% or more on the only server that has any."] == (
        server_advice(cluster)
    )


def test_server_is_advised_if_one_kind_of_hardware_is_interfered() -> None:
    """A server is advised if all instances on one kind of hardware suffer interference."""
    states = {"GPU": Counter(interfered=2), "core": Counter(active=3, interfered=1)}
    assert [
        "Add a server with GPUs: all 2 instances on GPUs suffer interference."
    ] == instance_advice(states)


def test_most_instances_overloaded() -> None:
    """A server is advised if more than 80 % of the instances are overloaded."""
    assert [] == instance_advice({"core": Counter(overloaded=4, active=1)})
    assert ["Add a server: 9 of 10 instances are overloaded."] == instance_advice(
        {"core": Counter(overloaded=9, active=1)}
    )
    assert [] == instance_advice({})
