"""Stages are no worse than whole batches, whatever the load."""

from __future__ import annotations

import pytest

from benchmarks.lazy_points import CASES, points

MOST = 1.05


@pytest.mark.parametrize("name", ["encoder, b costs 0.75 + 0.25 b", "four recurrent layers"])
@pytest.mark.parametrize(
    "load",
    [pytest.param(0.2, marks=pytest.mark.slow), 0.5, pytest.param(0.9, marks=pytest.mark.slow)],
)
def test_stages_are_never_behind_the_best_of_windows_and_deadline(name: str, load: float) -> None:
    """In the mean and at the 99th percentile, by the same arrivals for all."""
    (point,) = points(CASES[name](), [load], count=3000)

    assert max(point.over) <= MOST


@pytest.mark.parametrize("name", ["whole", "encoder, b costs b"])
def test_a_model_that_runs_whole_is_batched_by_the_policy_in_front(name: str) -> None:
    """Every request is answered when it is with `deadline`."""
    (point,) = points(CASES[name](), [0.8], count=1000)

    assert point.mean["deadline"] == point.mean["lazy"]
    assert point.p99["deadline"] == point.p99["lazy"]
