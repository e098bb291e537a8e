"""What instances cost by the bill, at the batches that a rate and an objective give."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from carpool.latency.linear import Linear
from scaler.planning.cost import PayPerUse, Prices, Reserved
from scaler.planning.sizing import Objective, sizes
from scaler.policies.infless.bill import billed_prices, mean_batch, rate_step, unit_prices
from scaler.policies.infless.covering import PricedSizes
from tests.scaler.loads import load

if TYPE_CHECKING:
    from carpool.scaling import FunctionLoad, Size

MODEL = Linear(0.02, 0.002, memory_mb=512)
PRICES = Prices(cpu_core_s=1e-4, memory_gb_s=2e-5, call=1e-6)


def function(rate_rps: float, prices: Prices = PRICES, *, reserved: bool = False) -> FunctionLoad:
    """A function with all sizes that meet 100 ms, by one billing rule."""
    found = sizes(MODEL, Objective(0.1, offset=0.0, max_batch=8), prices)
    rule = Reserved(prices) if reserved else PayPerUse(prices)
    return dataclasses.replace(
        load(rate_rps, model=MODEL, slo_s=0.1, max_batch=8),
        sizes=found,
        prices=prices,
        billing=rule,
    )


def price_of_request(rate_rps: float, batch: int) -> float:
    """What a request costs on instances with batches of up to so many."""
    one = function(rate_rps)
    size = next(size for size in one.sizes if size.batch == batch)
    return billed_prices(one.sizes, one, rate_step(one)).at(1.0)[size] / size.rate_rps


def best(one: FunctionLoad) -> Size | None:
    """The size with the cheapest request."""
    return PricedSizes(billed_prices(one.sizes, one, rate_step(one)).at(1.0)).best


@pytest.mark.parametrize(
    ("rate", "window_s", "most", "expected"),
    [(10.0, 0.2, 4, 2.78198), (20.0, 0.2, 4, 3.652), (0.0, 1.0, 8, 1.0), (1e6, 1.0, 8, 8.0)],
)
def test_a_batch_is_as_full_as_the_window_makes_it(
    rate: float, window_s: float, most: int, expected: float
) -> None:
    """As in the worked cases of BATCH's law."""
    assert pytest.approx(expected, rel=1e-5) == mean_batch(rate, window_s, most)


def test_a_batch_that_fills_costs_its_execution_and_a_call() -> None:
    """Shared by all of its requests; one that does not is shared by those that come."""
    per_second = PRICES.per_second(MODEL.resources(8, 1.0, 0.0))
    full = (per_second * 0.036 + 1e-6) / 8
    assert pytest.approx(full) == price_of_request(1e5, 8)
    alone = (per_second * 0.022 + 1e-6) / 1
    assert pytest.approx(alone, rel=0.02) == price_of_request(0.1, 8)
    assert pytest.approx(alone) == price_of_request(0.1, 1)


def test_who_pays_for_lifetimes_pays_for_no_batches() -> None:
    """The price of an instance is what it costs to have, at any rate."""
    one = function(1.0, reserved=True)
    assert rate_step(one) is None
    for size, price in billed_prices(one.sizes, one, None).at(1.0).items():
        assert pytest.approx(size.price_per_s) == price


def test_without_prices_units_are_saved() -> None:
    """Nothing else can be."""
    one = function(1.0, Prices(), reserved=True)
    assert unit_prices(one.sizes) == billed_prices(one.sizes, one, None)


def test_scarce_cores_are_dearer_and_memory_is_not() -> None:
    """Only what is paid for cores is multiplied."""
    one = function(1.0, reserved=True)
    size = one.sizes[0]
    prices = billed_prices(one.sizes, one, None)
    assert pytest.approx(1e-4) == prices.at(2.0)[size] - prices.at(1.0)[size]


def test_the_best_size_follows_the_rate() -> None:
    """Many requests make large batches pay."""
    many = best(function(5000.0))
    assert many is not None
    assert many.batch == 8
