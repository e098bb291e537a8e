"""Staged execution is no worse than whole batches at any load."""

from __future__ import annotations

import pytest

from benchmarks.lazy_points import CASES, points

MOST = 1.05


@pytest.mark.parametrize("name", ["encoder, b costs 0.75 + 0.25 b", "four recurrent layers"])
@pytest.mark.parametrize(
    "load",
    [pytest.param(0.2, marks=pytest.mark.slow), 0.5, pytest.param(0.9, marks=pytest.mark.slow)],
)
def test_staged_latency_is_near_best_whole_batch_policy(name: str, load: float) -> None:
    """For the same arrivals, mean and P99 are within 5 % of the best whole-batch policy."""
    (point,) = points(CASES[name](), [load], count=3000)

    assert max(point.over) <= MOST


@pytest.mark.parametrize("name", ["whole", "encoder, b costs b"])
def test_single_stage_model_has_latencies_of_deadline_policy(name: str) -> None:
    """A model in one stage has the same latencies as with `deadline`."""
    (point,) = points(CASES[name](), [0.8], count=1000)

    assert point.mean["deadline"] == point.mean["lazy"]
    assert point.p99["deadline"] == point.p99["lazy"]
