"""Demands under the names that they are counted under."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.variants.demand import Demand


@pytest.mark.parametrize(
    ("demand", "name"),
    [
        (Demand(latency_s=0.1, accuracy=0.75), "latency=0.1,accuracy=0.75"),
        (Demand(cost=2e-5), "cost=2e-05"),
        (Demand(0.1, 0.9, 1.0, "small-int8-t1"), "variant=small-int8-t1"),
        (Demand(), "latency=inf"),
    ],
)
def test_a_demand_has_a_name(demand: Demand, name: str) -> None:
    """The scaler reads back from it what it needs."""
    assert name == demand.name
    read = Demand.parse(name)
    assert read is not None
    assert name == read.name


@pytest.mark.parametrize(
    "name", ["web", "*", "latency", "latency=", "latency=fast", "cost=nan", "a=1", "latency=-1"]
)
def test_other_names_are_applications(name: str) -> None:
    """Of users who give a name."""
    assert Demand.parse(name) is None


@given(st.floats(1e-4, 1e3), st.floats(0, 1), st.floats(1e-9, 1e3), st.floats(0, 1))
def test_a_coarse_demand_is_no_laxer_and_still_met(
    latency_s: float, accuracy: float, cost: float, part: float
) -> None:
    """What meets the coarse demand meets the exact one, and the other way round."""
    demand = Demand(latency_s, accuracy, cost)
    coarse = demand.coarse(latency_s * part, accuracy + (1 - accuracy) * part, cost * part)
    assert coarse.latency_s <= latency_s
    assert coarse.cost <= cost
    assert coarse.latency_s >= latency_s * part
    assert coarse.cost >= cost * part - 1e-15
    assert coarse.accuracy >= accuracy - 1e-6
    assert len(coarse.name) <= 63


def test_there_are_few_names() -> None:
    """So that callers cannot fill the scaler's memory with demands."""
    names = {Demand(0.001 * n).coarse(0.0, 0.0, 0.0).name for n in range(1, 100_000)}
    assert len(names) < 40
    assert math.inf == Demand().coarse(0.0, 0.0, 0.0).latency_s
