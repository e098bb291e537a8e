"""Billed costs of instances, with the batches that a rate and an objective give."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from carpool.latency.linear import Linear
from carpool.sizing import Objective, sizes
from scaler.planning.cost import PayPerUse, Prices, Reserved
from scaler.policies.infless.bill import billed_prices, mean_batch, rate_step, unit_prices
from scaler.policies.infless.covering import PricedSizes
from tests.scaler.loads import load

if TYPE_CHECKING:
    from carpool.scaling import FunctionLoad, Size

MODEL = Linear(0.02, 0.002, memory_mb=512)
PRICES = Prices(cpu_core_s=1e-4, memory_gb_s=2e-5, call=1e-6)


def function(rate_rps: float, prices: Prices = PRICES, *, reserved: bool = False) -> FunctionLoad:
    """Return a function with all sizes that meet 100 ms, under one billing rule."""
    found = sizes(MODEL, Objective(0.1, offset=0.0, max_batch=8), prices)
    rule = Reserved(prices) if reserved else PayPerUse(prices)
    return dataclasses.replace(
        load(rate_rps, model=MODEL, slo_s=0.1, max_batch=8),
        sizes=found,
        prices=prices,
        billing=rule,
    )


def price_of_request(rate_rps: float, batch: int) -> float:
    """Return the cost of a request on instances with batches of up to ``batch``."""
    one = function(rate_rps)
    size = next(size for size in one.sizes if size.batch == batch)
    return billed_prices(one.sizes, one, rate_step(one)).at(1.0)[size] / size.rate_rps


def best(one: FunctionLoad) -> Size | None:
    """Return the size with the cheapest request; None if there is none."""
    return PricedSizes(billed_prices(one.sizes, one, rate_step(one)).at(1.0)).best


@pytest.mark.parametrize(
    ("rate", "window_s", "most", "expected"),
    [(10.0, 0.2, 4, 2.78198), (20.0, 0.2, 4, 3.652), (0.0, 1.0, 8, 1.0), (1e6, 1.0, 8, 8.0)],
)
def test_mean_batch_follows_window(
    rate: float, window_s: float, most: int, expected: float
) -> None:
    """Mean batches are those of the worked cases of BATCH's law."""
    assert pytest.approx(expected, rel=1e-5) == mean_batch(rate, window_s, most)


def test_batch_cost_is_shared_by_its_requests() -> None:
    """The cost of an execution and a call is divided among the requests of the batch."""
    per_second = PRICES.per_second(MODEL.resources(8, 1.0, 0.0))
    full = (per_second * 0.036 + 1e-6) / 8
    assert pytest.approx(full) == price_of_request(1e5, 8)
    alone = (per_second * 0.022 + 1e-6) / 1
    assert pytest.approx(alone, rel=0.02) == price_of_request(0.1, 8)
    assert pytest.approx(alone) == price_of_request(0.1, 1)


def test_reserved_price_does_not_depend_on_rate() -> None:
    """Under reserved billing, the price of an instance does not depend on the rate."""
    one = function(1.0, reserved=True)
    assert rate_step(one) is None
    for size, price in billed_prices(one.sizes, one, None).at(1.0).items():
        assert pytest.approx(size.price_per_s) == price


def test_sizes_are_compared_by_resource_units_without_prices() -> None:
    """Without prices, sizes are compared by resource units."""
    one = function(1.0, Prices(), reserved=True)
    assert unit_prices(one.sizes) == billed_prices(one.sizes, one, None)


def test_scarcity_raises_price_of_cores_only() -> None:
    """Scarcity multiplies only the part of the price that is paid for cores."""
    one = function(1.0, reserved=True)
    size = one.sizes[0]
    prices = billed_prices(one.sizes, one, None)
    assert pytest.approx(1e-4) == prices.at(2.0)[size] - prices.at(1.0)[size]


def test_the_best_size_follows_the_rate() -> None:
    """At a high rate a large batch is the cheapest."""
    many = best(function(5000.0))
    assert many is not None
    assert many.batch == 8
