"""When to add a server: INFaaS's three rules (ATC'21, section 4.2.3), as advice to the operator.

1. Some resource is used by more than 80 % on every server.
2. Every instance on some kind of hardware is interfered with.
3. More than 80 % of the instances are overloaded.

In the paper, rules 2 and 3 are about servers. As the OpenFaaS API does not tell which instance is
on which server, they are about instances here. No server is ever added automatically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.variants.instance_states import State

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping

    from carpool.scaling import ClusterView

__all__ = ["instance_advice", "server_advice"]

_MUCH = 0.8


def server_advice(cluster: ClusterView | None) -> list[str]:
    """Return advice by the first rule; empty if the servers are not known."""
    if cluster is None or not cluster.nodes:
        return []
    used = [cluster.used(node) for node in range(len(cluster.nodes))]
    advice = []
    for resource in ("cores", "GPUs", "memory"):
        shares = [each[resource] for each in used if resource in each]
        if shares and min(shares) > _MUCH:
            where = "the only server" if len(shares) == 1 else f"all {len(shares)} servers"
            advice.append(
                f"Add a server: {resource} are used by {min(shares):.0%} or more on {where} that "
                f"{'has' if len(shares) == 1 else 'have'} any."
            )
    return advice


def instance_advice(states: Mapping[str, Counter[str]]) -> list[str]:
    """Return advice by the second and third rules.

    Args:
        states: Number of instances by state, for each kind of hardware.
    """
    advice = []
    for hardware, counts in states.items():
        total = counts.total()
        if total and counts[State.INTERFERED.value] == total:
            advice.append(
                f"Add a server with {hardware}s: "
                f"all {total} instances on {hardware}s suffer interference."
            )
    total = sum(counts.total() for counts in states.values())
    overloaded = sum(counts[State.OVERLOADED.value] for counts in states.values())
    if total and overloaded > _MUCH * total:
        advice.append(f"Add a server: {overloaded} of {total} instances are overloaded.")
    return advice
