"""The cheapest instances with the capacity for a rate."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.latency import Resources
from carpool.latency.table import read_table
from carpool.scaling import CORE_WEIGHT, Size
from carpool.sizing import Objective, sizes
from scaler.policies.common.rate_shares import rate_high
from scaler.policies.infless.bill import unit_prices
from scaler.policies.infless.covering import CoverDemand, PricedSizes, undominated
from tests.scaler.loads import size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.measured import Data


POOLS = itertools.count()


def made(rate: float, cores: float, exec_s: float = 0.01, batch: int = 1, gpu: float = 0.0) -> Size:
    """Return a size with this rate that is distinct from all others."""
    resources = Resources(cores, gpu)
    return Size(
        batch, cores, gpu, pool=next(POOLS), resources=resources, exec_s=exec_s, rate_rps=rate
    )


def prices(sizes: Sequence[Size], core: float = 1.0) -> dict[Size, float]:
    """Return the unit prices of sizes, with a core worth ``core`` percent of a GPU."""
    return unit_prices(sizes, core).at(1.0)


SIZES = st.lists(
    st.builds(made, st.floats(1, 100), st.floats(0.5, 16), st.sampled_from([0.01, 0.02, 0.05])),
    min_size=1,
    max_size=6,
)
RATES = st.floats(0.1, 1000)


def taken_in_time(instances: Counter[Size], demand: CoverDemand) -> bool:
    """Return whether the instances meet the demand, with the reserve of the slowest."""
    having = demand.having(instances)
    return having.kept_rps >= having.needed_rps * (1 - 1e-9)


@given(found=SIZES, rate=RATES)
def test_cover_has_capacity_for_demand(found: list[Size], rate: float) -> None:
    """A cover has the capacity for rate and reserve."""
    demand = CoverDemand(rate, 0.1, 0.01)
    cover = PricedSizes(prices(found)).cover(demand)
    assert cover is not None
    assert taken_in_time(cover.instances, demand)
    cores = sum(one.cpu * count for one, count in cover.instances.items())
    assert pytest.approx(cover.price) == cores


@given(found=SIZES, rate=RATES)
def test_no_size_alone_is_cheaper(found: list[Size], rate: float) -> None:
    """A cover is never more expensive than one of a single size."""
    demand = CoverDemand(rate, 0.1, 0.01)
    cover = PricedSizes(prices(found)).cover(demand)
    assert cover is not None
    for one in found:
        alone = math.ceil(demand.beyond_kept(one) / one.rate_rps - 1e-9) * one.cpu
        assert cover.price <= alone * (1 + 1e-9)


@given(found=SIZES, rate=st.floats(0.1, 60))
def test_small_cover_is_cheapest_combination(found: list[Size], rate: float) -> None:
    """No combination of up to three equally fast instances is cheaper than the cover."""
    alike = [made(one.rate_rps, one.cpu) for one in found]
    demand = CoverDemand(rate, 0.1, 0.01)
    cover = PricedSizes(prices(alike)).cover(demand)
    assert cover is not None
    tries = [c for n in (1, 2, 3) for c in itertools.combinations_with_replacement(alike, n)]
    costs = [sum(one.cpu for one in c) for c in tries if taken_in_time(Counter(c), demand)]
    assert cover.price <= min(costs, default=math.inf) * (1 + 1e-9)


def test_kept_instances_reduce_cover() -> None:
    """Only the rate beyond the kept instances is covered."""
    one = made(10, 2)
    demand = CoverDemand(45, 0.5, 0.01)
    all_new = PricedSizes(prices([one])).cover(demand)
    rest = PricedSizes(prices([one])).cover(demand.having(Counter({one: 3})))
    assert all_new is not None
    assert rest is not None
    assert all_new.instances.total() == rest.instances.total() + 3
    assert Counter() == getattr(
        PricedSizes(prices([one])).cover(demand.having(Counter({one: 30}))), "instances", 0
    )


def test_remaining_rate_is_covered_by_smaller_instance() -> None:
    """The remainder beyond two large instances is covered by a small one."""
    large, small = made(100, 8), made(12, 1.1)
    cover = PricedSizes(prices([large, small])).cover(CoverDemand(200, 0.5, 0.01))
    assert cover is not None
    assert Counter({large: 2, small: 1}) == cover.instances


def test_a_quicker_size_may_need_less_reserve() -> None:
    """At low rates a faster, more expensive size can be cheaper, as it needs less reserve."""
    slow, quick = made(10.5, 0.5, exec_s=0.095), made(50, 3.0, exec_s=0.02)
    assert slow.efficiency > quick.efficiency
    few = PricedSizes(prices([slow, quick])).cover(CoverDemand(20, 0.1, 0.01))
    many = PricedSizes(prices([slow, quick])).cover(CoverDemand(2000, 0.1, 0.01))
    assert few is not None
    assert many is not None
    assert Counter({quick: 1}) == few.instances
    assert many.instances[slow] > many.instances[quick]


def test_size_without_slack_is_not_used() -> None:
    """A size that takes the whole objective is not used, as requests may have to wait."""
    assert None is PricedSizes(prices([made(10, 1, exec_s=0.1)])).cover(CoverDemand(5, 0.1, 0.01))


def test_limit_leads_to_large_instances() -> None:
    """A limit leads to large instances, as many as allowed if even these are too few."""
    cheap, large = made(10, 1), made(100, 20)
    shop = PricedSizes(prices([cheap, large]))
    within = shop.cover(CoverDemand(50, 0.5, 0.01), 2)
    beyond = shop.cover(CoverDemand(5000, 0.5, 0.01), 2)
    assert within is not None
    assert beyond is not None
    assert Counter({large: 1}) == within.instances
    assert Counter({large: 2}) == beyond.instances


def test_expensive_cores_lead_to_gpus() -> None:
    """The best size has only cores, and a GPU share if the price of cores is high."""
    found = [size(1, 2, 0), size(2, 2, 10), size(4, 4, 20)]
    assert found[0] is PricedSizes(prices(found, CORE_WEIGHT)).best
    assert found[1] is PricedSizes(prices(found, 5.0)).best
    assert None is PricedSizes({}).best


def test_resnet_is_most_efficient_without_batches(data: Data) -> None:
    """Within 200 ms, a single request on two cores is the most efficient size of ResNet-50."""
    found = sizes(read_table(data.table("resnet-50")), Objective(0.2))
    best = PricedSizes(prices(found, CORE_WEIGHT)).best
    assert best is not None
    assert "b1-c2" == best.name
    assert pytest.approx(data.either(6.7, 6.6), abs=0.05) == best.efficiency
    fours = [one.efficiency for one in found if one.batch == 4]
    assert pytest.approx(data.either(3.1, 1.9), abs=0.05) == max(fours)


@given(found=SIZES)
def test_only_dominated_sizes_are_dropped(found: list[Size]) -> None:
    """For each dropped size, a remaining one is at least as good in everything."""
    left = undominated(found)
    assert set(left) <= set(found)
    for one in set(found) - set(left):
        assert any(
            other.cpu <= one.cpu and other.rate_rps >= one.rate_rps and other.exec_s <= one.exec_s
            for other in left
        )


def test_equal_sizes_are_kept_once() -> None:
    """Of equal sizes only one is kept."""
    assert 1 == len(undominated([made(10, 1), made(10, 1)]))
    assert () == undominated([])


@given(found=SIZES, rate=RATES)
def test_dropping_dominated_sizes_does_not_raise_cost(found: list[Size], rate: float) -> None:
    """Dropping dominated sizes makes no cover more expensive."""
    demand = CoverDemand(rate, 0.1, 0.01)
    every, few = (
        PricedSizes(prices(found)).cover(demand),
        PricedSizes(prices(undominated(found))).cover(demand),
    )
    assert every is not None
    assert few is not None
    assert few.price <= every.price * (1 + 1e-9)
    assert rate_high(few.instances) > 0


def test_pay_per_use_prefers_size_with_cheapest_request() -> None:
    """Under pay-per-use billing, the size with the cheapest request is used even at low rates."""
    large, small = made(30, 6), made(10, 3)
    demand = CoverDemand(5, 0.5, 0.01)
    kept, used = (
        PricedSizes(prices([large, small]), by_use=by_use).cover(demand) for by_use in (False, True)
    )
    assert kept is not None
    assert used is not None
    assert large not in kept.instances
    assert Counter({large: 1}) == used.instances
