"""Search for the best static choice of variants for a scenario.

A static choice has, for each function, either one pool of instances of one variant for all its
applications, or one pool for each application. The cheapest pool is taken that misses no more than
allowed in a simulation of the whole horizon: all variants with all numbers of instances are
candidates, in the order of their cost. A candidate is skipped without simulation only if it cannot
take the load, however requests are distributed: where the rate exceeds its capacity for a while,
the excess is late. So no choice of this kind is cheaper. (Two variants for one application are not
considered.)
"""

from __future__ import annotations

import dataclasses
import heapq
import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from carpool.scaling import Proposal
from scaler.control.guard import Guard
from scaler.plan_command import snapshot_of
from scaler.policies.infaas.offers import Offers
from simulator.metrics import measured
from simulator.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from carpool.scaling import ClusterView, FunctionLoad, Size
    from scaler.policies.infaas.offers import Offer
    from scaler.scenarios.scenario import App, Function, Scenario

__all__ = ["Pool", "Standing", "Static", "best_static", "described"]

_STEP_S = 10.0
_SURE = 1.2  # times more misses than may be, so that chance cannot have been the reason


class Pool(NamedTuple):
    """A number of instances of one variant, for the given applications."""

    apps: tuple[str, ...]
    offer: Offer
    instances: int
    cost_s: float


class Static:
    """Policy that always proposes the same pools."""

    def __init__(self, pools: dict[str, tuple[Pool, ...]]) -> None:
        self._proposals = {name: _proposal(of_function) for name, of_function in pools.items()}

    def propose(self, loads: Sequence[FunctionLoad], cluster: ClusterView) -> dict[str, Proposal]:
        """Return the fixed proposals."""
        del loads, cluster
        return self._proposals


class Standing:
    """Policy with fixed pools, given by the names of their classes in a scenario."""

    @dataclass(frozen=True, slots=True)
    class Params:
        """Parameters of `Standing`.

        Attributes:
            pools: by function, what `described` says of each: JSON.
        """

        pools: str = "{}"

    def __init__(self, params: Params) -> None:
        self._pools = json.loads(params.pools)
        self._offers = Offers()

    def propose(self, loads: Sequence[FunctionLoad], cluster: ClusterView) -> dict[str, Proposal]:
        """Return the same pools every time."""
        del cluster
        proposals = {}
        for load in loads:
            offers = {offer.size.name: offer for offer in self._offers.of(load)}
            pools = tuple(
                Pool(tuple(apps), offers[name], instances, 0.0)
                for apps, name, instances in self._pools[load.name]
            )
            proposals[load.name] = _proposal(pools)
        return proposals


def described(pools: dict[str, tuple[Pool, ...]]) -> str:
    """Encode pools as the parameter of `Standing`."""
    data = {
        name: [[pool.apps, pool.offer.size.name, pool.instances] for pool in of_function]
        for name, of_function in pools.items()
    }
    return json.dumps(data)


def best_static(scenario: Scenario, most_missed: float) -> dict[str, tuple[Pool, ...]]:
    """Return the cheapest pools by function that miss at most ``most_missed`` of the requests."""
    pools_of = {}
    for function in scenario.functions:
        shared = _pool(scenario, function, function.apps, most_missed)
        apart = tuple(_pool(scenario, function, (app,), most_missed) for app in function.apps)
        ways = [(shared,), apart]
        pools_of[function.name] = min(ways, key=lambda pools: sum(pool.cost_s for pool in pools))
    return pools_of


def _pool(
    scenario: Scenario, function: Function, apps: tuple[App, ...], most_missed: float
) -> Pool:
    alone = dataclasses.replace(
        scenario, functions=(dataclasses.replace(function, apps=apps),), nodes=()
    )
    names = tuple(app.name for app in apps)
    rates = [
        sum(app.arrivals.rate(at * _STEP_S) for app in apps)
        for at in range(int(scenario.horizon_s / _STEP_S))
    ]
    slo_s = max(app.slo_s for app in apps)
    for cost_s, offer, count in _by_cost(alone):
        rate_rps = count * offer.size.rate_rps
        lost = sum(max(0.0, rate * _STEP_S - rate_rps * (_STEP_S + slo_s)) for rate in rates)
        if lost > _SURE * most_missed * sum(rates) * _STEP_S:
            continue
        pool = Pool(names, offer, count, cost_s)
        seen = measured(Simulation(alone, Guard(Static({function.name: (pool,)}))).run())
        if seen["slo_miss_ratio"] <= most_missed:
            return pool
    message = f"no variant suits {names}"
    raise LookupError(message)


def _by_cost(scenario: Scenario) -> Iterator[tuple[float, Offer, int]]:
    """Yield every suitable variant with 1, 2, ... instances, the cheapest first."""
    load = snapshot_of(scenario).functions[0]
    offers = [o for o in Offers().of(load) if all(o.suits(app) for app in load.apps)]
    heap = []
    for number, offer in enumerate(offers):
        each = scenario.prices.per_second(offer.size.resources) or offer.size.units
        heap.append((each, number, 1, each))
    heapq.heapify(heap)
    while heap:
        cost_s, number, count, each = heapq.heappop(heap)
        yield cost_s, offers[number], count
        heapq.heappush(heap, (each * (count + 1), number, count + 1, each))


def _proposal(pools: tuple[Pool, ...]) -> Proposal:
    """Return a proposal of these pools; applications with pools of the same size share them."""
    instances: Counter[Size] = Counter()
    for pool in pools:
        instances[pool.offer.size] += pool.instances
    shares = {app: {pool.offer.size: 1.0} for pool in pools for app in pool.apps}
    return Proposal(instances, wait_s={"*": 0.0}, shares=shares)
