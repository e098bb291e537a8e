"""Demands and the names under which they are counted."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.variants.demand import VariantDemand


@pytest.mark.parametrize(
    ("demand", "name"),
    [
        (VariantDemand(latency_s=0.1, accuracy=0.75), "latency=0.1,accuracy=0.75"),
        (VariantDemand(cost=2e-5), "cost=2e-05"),
        (VariantDemand(0.1, 0.9, 1.0, "small-int8-t1"), "variant=small-int8-t1"),
        (VariantDemand(), "latency=inf"),
    ],
)
def test_demand_name_round_trips(demand: VariantDemand, name: str) -> None:
    """The name of a demand can be parsed to a demand with the same name."""
    assert name == demand.name
    read = VariantDemand.parse(name)
    assert read is not None
    assert name == read.name


@pytest.mark.parametrize(
    "name", ["web", "*", "latency", "latency=", "latency=fast", "cost=nan", "a=1", "latency=-1"]
)
def test_application_names_are_not_demands(name: str) -> None:
    """Names of applications are not parsed as demands."""
    assert VariantDemand.parse(name) is None


@given(st.floats(1e-4, 1e3), st.floats(0, 1), st.floats(1e-9, 1e3), st.floats(0, 1))
def test_coarse_demand_is_at_least_as_strict_and_within_bounds(
    latency_s: float, accuracy: float, cost: float, part: float
) -> None:
    """The coarse demand is at least as strict as the exact one, but not beyond the given bounds."""
    demand = VariantDemand(latency_s, accuracy, cost)
    coarse = demand.coarse(latency_s * part, accuracy + (1 - accuracy) * part, cost * part)
    assert coarse.latency_s <= latency_s
    assert coarse.cost <= cost
    assert coarse.latency_s >= latency_s * part
    assert coarse.cost >= cost * part - 1e-15
    assert coarse.accuracy >= accuracy - 1e-6
    assert len(coarse.name) <= 63


def test_number_of_demand_names_is_limited() -> None:
    """The number of names is limited, so that callers cannot fill the scaler's memory."""
    names = {VariantDemand(0.001 * n).coarse(0.0, 0.0, 0.0).name for n in range(1, 100_000)}
    assert len(names) < 40
    assert math.inf == VariantDemand().coarse(0.0, 0.0, 0.0).latency_s
