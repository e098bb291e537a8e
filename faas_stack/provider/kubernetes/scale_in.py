"""Which pods are to go when there are to be fewer: those with the fewest calls. Pure.

Kubernetes removes pods with the lowest deletion cost first, and every cost is a request to the API
server. So none is written where the choice makes no difference, and otherwise of the two ways to
say it the one with fewer: those that go are lowered, or those that stay are raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Candidate", "deletion_costs"]

_FIRST, _LAST = "-1", "1"  # without a cost it is 0


class Candidate(NamedTuple):
    """A ready pod.

    Attributes:
        name: of the pod.
        calls: how many it has to answer.
        cost: its deletion cost as it is now; empty: none.
    """

    name: str
    calls: int
    cost: str


def deletion_costs(pods: Iterable[Candidate], left: int) -> dict[str, str]:
    """The costs to write, by pod, so that the busiest stay; empty: the cost is to be removed.

    Args:
        pods: all that are ready.
        left: how many of them are to stay.
    """
    ranked = sorted(pods, key=lambda pod: -pod.calls)
    stay, go = ranked[:left], ranked[left:]
    if not stay or not go or stay[0].calls == go[-1].calls:
        return {}
    lowered = {pod.name: _FIRST for pod in go if _cost(pod) >= 0}
    lowered |= {pod.name: "" for pod in stay if _cost(pod) < 0}
    raised = {pod.name: _LAST for pod in stay if _cost(pod) <= 0}
    raised |= {pod.name: "" for pod in go if _cost(pod) > 0}
    return min(lowered, raised, key=len)


def _cost(pod: Candidate) -> int:
    return int(pod.cost or 0)  # the API server takes whole numbers alone
