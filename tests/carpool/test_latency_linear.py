"""The linear latency model."""

from __future__ import annotations

import math

import pytest

from carpool.errors import ConfigError
from carpool.latency import Configuration, LatencyModel, Resources
from carpool.latency.linear import Linear


def test_latency_is_linear_in_batch_size_on_any_instance() -> None:
    """The latency is the same for all instance sizes and quantiles."""
    model: LatencyModel = Linear(0.05, 0.02, load_s=3.0, memory_mb=100)
    assert pytest.approx(0.07) == model.predict(1, 1, 0)
    assert pytest.approx(0.13) == model.predict(4, 0.5, 0, 0.99)
    assert pytest.approx(0.13) == model.predict(4, 8, 50, 0.01)
    assert 3.0 == model.load_s
    assert Resources(2, 10, 100) == model.resources(4, 2, 10)


@pytest.mark.parametrize(("batch", "cpu", "gpu"), [(0, 1, 0), (-1, 1, 0), (1, 0, 0)])
def test_empty_batch_or_no_resources_is_infeasible(batch: int, cpu: float, gpu: float) -> None:
    """An infeasible size has no latency."""
    assert Linear(0.05, 0.02).predict(batch, cpu, gpu) is None


def test_all_batch_sizes_are_offered_on_one_instance_size() -> None:
    """Batches from 1 to the largest are offered, on the model's instance size."""
    offered = list(Linear(0.05, 0.02, cpu=2, gpu=10).configurations(3))
    assert [Configuration(batch, 2, 10) for batch in (1, 2, 3)] == offered


@pytest.mark.parametrize(
    ("base_s", "per_item_s", "expected"),
    [
        (-0.1, 0.2, "base_s = '-0.1': expected a number of at least 0"),
        (0.1, math.nan, "per_item_s = 'nan': expected a number of at least 0"),
        (0.1, math.inf, "per_item_s = 'inf'"),
        (0.0, 0.0, "base_s = '0': expected a number above 0, here or in per_item_s"),
    ],
)
def test_impossible_latencies_are_refused(base_s: float, per_item_s: float, expected: str) -> None:
    """Negative latencies and batches that take no time are refused."""
    with pytest.raises(ConfigError, match=expected):
        Linear(base_s, per_item_s)
