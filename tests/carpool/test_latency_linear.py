"""The linear latency model."""

from __future__ import annotations

import math

import pytest

from carpool.errors import ConfigError
from carpool.latency import Configuration, LatencyModel, Resources
from carpool.latency.linear import Linear


def test_a_batch_costs_a_base_and_so_much_an_item_on_any_instance() -> None:
    """The latency is the line, whatever the size of the instance and the quantile."""
    model: LatencyModel = Linear(0.05, 0.02, load_s=3.0, memory_mb=100)
    assert pytest.approx(0.07) == model.predict(1, 1, 0)
    assert pytest.approx(0.13) == model.predict(4, 0.5, 0, 0.99)
    assert pytest.approx(0.13) == model.predict(4, 8, 50, 0.01)
    assert 3.0 == model.load_s
    assert Resources(2, 10, 100) == model.resources(4, 2, 10)


@pytest.mark.parametrize(("batch", "cpu", "gpu"), [(0, 1, 0), (-1, 1, 0), (1, 0, 0)])
def test_no_batch_or_nothing_to_run_on_is_infeasible(batch: int, cpu: float, gpu: float) -> None:
    """What cannot run has no latency."""
    assert Linear(0.05, 0.02).predict(batch, cpu, gpu) is None


def test_every_batch_size_is_worth_trying_on_the_one_size() -> None:
    """A planner is offered batches of 1 to the largest, on the instance the model names."""
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
def test_what_no_machine_does_is_refused(base_s: float, per_item_s: float, expected: str) -> None:
    """Negative latencies, and batches that take no time, are errors."""
    with pytest.raises(ConfigError, match=expected):
        Linear(base_s, per_item_s)
