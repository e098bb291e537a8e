"""Choice of the pods to remove when scaling in: those with the fewest calls. Pure.

Kubernetes removes the pods with the lowest deletion cost first, and setting a cost takes a request
to the API server. So no costs are written if the choice makes no difference. Otherwise, either the
costs of the pods to remove are lowered or those of the remaining ones are raised, whichever takes
fewer requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ScaleInCandidate", "deletion_costs"]

_FIRST, _LAST = "-1", "1"  # without a cost, Kubernetes assumes 0


class ScaleInCandidate(NamedTuple):
    """A ready pod.

    Attributes:
        name: Name of the pod.
        calls: Number of its in-flight calls.
        cost: Its present deletion cost; empty if it has none.
    """

    name: str
    calls: int
    cost: str


def deletion_costs(pods: Iterable[ScaleInCandidate], left: int) -> dict[str, str]:
    """Return the costs to write, by pod, so that the busiest stay; empty to remove a cost.

    Args:
        pods: All ready pods.
        left: Number of pods that are to stay.
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


def _cost(pod: ScaleInCandidate) -> int:
    return int(pod.cost or 0)  # the API server accepts only whole numbers
