"""Tests of the pods to remove first: those with the fewest calls, marked with few requests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from faas_stack.provider.kubernetes.scale_in import ScaleInCandidate, deletion_costs

PODS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(("", "-1", "0", "1", "7"))),
    min_size=1,
    max_size=8,
).map(lambda found: [ScaleInCandidate(f"p{n}", *each) for n, each in enumerate(found)])


@given(PODS, st.integers(0, 8))
def test_less_busy_pods_are_removed_first(pods: list[ScaleInCandidate], left: int) -> None:
    """No busier pod is removed while a less busy one stays.

    Kubernetes removes pods with the lowest costs first, in any order among equal costs.
    """
    written = deletion_costs(pods, left)
    if not 0 < left < len(pods) or len({pod.calls for pod in pods}) == 1:
        assert {} == written
        return
    costs = {pod.name: int(written.get(pod.name, pod.cost) or 0) for pod in pods}
    ranked = sorted(pods, key=lambda pod: (costs[pod.name], pod.calls))
    gone, stay = ranked[: len(pods) - left], ranked[len(pods) - left :]
    assert max(costs[pod.name] for pod in gone) < min(costs[pod.name] for pod in stay)
    assert max(pod.calls for pod in gone) <= min(pod.calls for pod in stay)


@given(PODS, st.integers(0, 8))
def test_at_most_half_of_pods_get_a_cost(pods: list[ScaleInCandidate], left: int) -> None:
    """At most half of the pods without a cost get one, and no cost is written twice."""
    fresh = [pod._replace(cost="") for pod in pods]
    written = deletion_costs(fresh, left)
    assert 2 * len(written) <= len(pods)
    again = [pod._replace(cost=written.get(pod.name, "")) for pod in fresh]
    assert {} == deletion_costs(again, left)
