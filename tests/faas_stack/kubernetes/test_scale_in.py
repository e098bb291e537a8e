"""Which pods are told to go first: those with the fewest calls, by as few requests as possible."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from faas_stack.provider.kubernetes.scale_in import Candidate, deletion_costs

PODS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(("", "-1", "0", "1", "7"))),
    min_size=1,
    max_size=8,
).map(lambda found: [Candidate(f"p{n}", *each) for n, each in enumerate(found)])


@given(PODS, st.integers(0, 8))
def test_no_busier_pod_goes_while_a_less_busy_one_stays(pods: list[Candidate], left: int) -> None:
    """Kubernetes removes the lowest costs first, and among equal ones any."""
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
def test_no_more_is_written_than_half_of_the_pods(pods: list[Candidate], left: int) -> None:
    """Of pods without a cost; what was written once is not written again."""
    fresh = [pod._replace(cost="") for pod in pods]
    written = deletion_costs(fresh, left)
    assert 2 * len(written) <= len(pods)
    again = [pod._replace(cost=written.get(pod.name, "")) for pod in fresh]
    assert {} == deletion_costs(again, left)
