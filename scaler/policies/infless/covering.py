"""Finds the cheapest instances for a rate: the search that replaces "largest batch first".

Theory of operation
-------------------
INFless's Algorithm 1 tries large batches before small ones. On measured tables the largest feasible
batch is often far from the most efficient, so here every size competes by its price for a request
per second. Three things keep that from being a simple minimum:

* The price of a size depends on what is saved and on what is scarce (`bill`): a planner whose
  servers run out of cores before GPUs searches again with more expensive cores.
* A size leaves its own slack, and with it its own reserve (`staffing`): a cheap size that takes
  nearly the whole objective may need so many spare instances that a faster one is cheaper.
* Instances are whole. Most of the rate is served by instances of one size, the bulk; the rest of
  it, less than two of those, by the cheapest few of any sizes that are no slower
  (`_CombinationTable`).

So for each size, in order of price per rate, the search determines the throughput needed with it as
the slowest, and the cheapest cover of that. It ends at a size whose bare rate is more expensive
than the best cover.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from itertools import combinations_with_replacement, product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from scaler.policies.common.rate_shares import rate_high
from scaler.policies.common.staffing import needed_rps

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from carpool.scaling import Size

__all__ = ["Cover", "CoverDemand", "PricedSizes", "undominated"]

_SHELF = 16  # number of sizes that are tried for the rest of a rate
_ROUNDING = 1e-9


class CoverDemand(NamedTuple):
    """Requirements of a function, and the instances that it keeps.

    Attributes:
        rate_rps: Requests per second.
        slo_s: Latency objective.
        miss: Share of requests that may miss it.
        kept_rps: Throughput of the instances that it keeps.
        slowest: Size of the slowest of those; None if there are none.
    """

    rate_rps: float
    slo_s: float
    miss: float
    kept_rps: float = 0.0
    slowest: Size | None = None

    def having(self, kept: Counter[Size]) -> CoverDemand:
        """Return the demand with these instances kept."""
        slowest = max(kept, key=lambda size: size.exec_s, default=None)
        return self._replace(kept_rps=rate_high(kept), slowest=slowest)

    @property
    def needed_rps(self) -> float:
        """Throughput that the instances need together if none is slower than those kept."""
        slowest = self.slowest
        if slowest is None:
            return self.rate_rps
        slack_s = self.slo_s - slowest.exec_s
        return needed_rps(self.rate_rps, slowest.exec_s, slack_s, self.miss, slowest.batch)

    def beyond_kept(self, size: Size) -> float:
        """Return the throughput still needed if there are instances of this size as well."""
        slowest = self.slowest
        if slowest is None or slowest.exec_s < size.exec_s:
            slowest = size
        return self._replace(slowest=slowest).needed_rps - self.kept_rps


class Cover(NamedTuple):
    """Instances that serve a rate together, and their price."""

    price: float
    instances: Counter[Size]


class _Combination(NamedTuple):
    rate_rps: float
    price: float
    sizes: tuple[Size, ...]


class PricedSizes:
    """The sizes of one model and objective, each with the price of an instance.

    Args:
        price: Price of a fully loaded instance, by size.
        by_use: Whether an instance with less load costs proportionally less, as executions are paid
            for.
    """

    def __init__(self, price: Mapping[Size, float], *, by_use: bool = False) -> None:
        self._by_use = by_use
        self.sizes = tuple(price)
        self._price = price
        self._by_price_of_rate = sorted(price, key=lambda size: price[size] / size.rate_rps)
        self._menus: dict[float, _CombinationTable] = {}

    def price(self, size: Size) -> float:
        """Return the price of an instance of this size."""
        return self._price[size]

    @property
    def best(self) -> Size | None:
        """The size with the lowest price for a request per second; None if there are no sizes."""
        return next(iter(self._by_price_of_rate), None)

    def cover(self, demand: CoverDemand, limit: float = math.inf) -> Cover | None:
        """Return the cheapest instances found for the demand, or the most that ``limit`` allows.

        Returns:
            None if no size meets the objective with some slack.
        """
        if demand.slowest and demand.needed_rps <= demand.kept_rps:
            return Cover(0.0, Counter())
        if self._by_use and (one := self._of_one_size(demand, limit)):
            return one
        best: Cover | None = None
        bare_rps = max(demand.rate_rps - demand.kept_rps, 0.0)
        for bulk in self._by_price_of_rate:
            price_of_rate = self._price[bulk] / bulk.rate_rps
            if best and best.price <= price_of_rate * bare_rps:
                break
            needed_rps = demand.beyond_kept(bulk)
            if needed_rps == math.inf or (best and best.price <= price_of_rate * needed_rps):
                continue
            covered = self._covered(needed_rps, bulk)
            if covered.instances.total() <= limit and (not best or covered.price < best.price):
                best = covered
        return best or self._most(demand, limit)

    def _of_one_size(self, demand: CoverDemand, limit: float) -> Cover | None:
        """Return enough instances of the size with the cheapest request; idle capacity is free."""
        for size in self._by_price_of_rate:
            needed_rps = demand.beyond_kept(size)
            if needed_rps == math.inf:
                continue
            count = max(math.ceil(needed_rps / size.rate_rps - _ROUNDING), 0)
            if count <= limit:
                return Cover(count * self._price[size], +Counter({size: count}))
        return None

    def _most(self, demand: CoverDemand, limit: float) -> Cover | None:
        """Return ``limit`` instances of the size with the highest throughput; None if unlimited."""
        quick = [size for size in self._price if demand.beyond_kept(size) < math.inf]
        if not quick or limit == math.inf:
            return None
        largest = max(quick, key=lambda size: (size.rate_rps, -self._price[size]))
        return Cover(limit * self._price[largest], +Counter({largest: int(limit)}))

    def _covered(self, rate_rps: float, bulk: Size) -> Cover:
        menu = self._menu(bulk.exec_s)
        beyond = max(math.floor(rate_rps / bulk.rate_rps) - 1, 0)
        rest = menu.cheapest(rate_rps - beyond * bulk.rate_rps)
        while rest is None:  # the menu has been cut short, or leads no further than one of these
            beyond += 1
            rest = menu.cheapest(rate_rps - beyond * bulk.rate_rps)
        instances = Counter(rest.sizes)
        instances[bulk] += beyond
        return Cover(rest.price + beyond * self._price[bulk], +instances)

    def _menu(self, exec_s: float) -> _CombinationTable:
        """Return the combinations of all sizes that are no slower than ``exec_s``."""
        if exec_s not in self._menus:
            quick = [size for size in self._price if size.exec_s <= exec_s]
            self._menus[exec_s] = _CombinationTable(
                _Combination(size.rate_rps, self._price[size], (size,)) for size in quick
            )
        return self._menus[exec_s]


class _CombinationTable:
    """Combinations of up to three instances of any sizes, without those that cost more for less."""

    def __init__(self, singles: Iterable[_Combination]) -> None:
        shelf = _thinned(_front(singles))
        pairs = combinations_with_replacement(shelf, 2)
        two = _front([*shelf, *(_sum(*pair) for pair in pairs)])
        self._front = _front([*two, *(_sum(*pair) for pair in product(two, shelf))])
        self._rates = [combination.rate_rps for combination in self._front]

    def cheapest(self, rate_rps: float) -> _Combination | None:
        """Return the cheapest combination for a rate, empty for a rate of 0; None if too high."""
        if rate_rps <= 0:
            return _Combination(0.0, 0.0, ())
        at = bisect_left(self._rates, rate_rps * (1 - _ROUNDING))
        return self._front[at] if at < len(self._front) else None


def _sum(a: _Combination, b: _Combination) -> _Combination:
    return _Combination(a.rate_rps + b.rate_rps, a.price + b.price, a.sizes + b.sizes)


def _front(combinations: Iterable[_Combination]) -> list[_Combination]:
    """Return the combinations that serve more than all that are as cheap, by rate."""
    front: list[_Combination] = []
    for combination in sorted(combinations, key=lambda c: (c.price, -c.rate_rps, len(c.sizes))):
        if not front or combination.rate_rps > front[-1].rate_rps:
            front.append(combination)
    return front


def _thinned(front: Sequence[_Combination]) -> Sequence[_Combination]:
    """Return evenly spaced combinations, including the one with the highest rate."""
    step = -(-len(front) // _SHELF)
    return front if step <= 1 else [*front[:-1:step], front[-1]]


def undominated(sizes: Sequence[Size]) -> tuple[Size, ...]:
    """Return the sizes that no other equals or beats in resources, rate and execution time."""
    if not sizes:
        return ()
    # All values as amounts of which less is better.
    rows = np.array([[*s.resources, -s.rate_rps, s.exec_s] for s in sizes])
    as_good = (rows[:, np.newaxis] <= rows[np.newaxis]).all(axis=2)
    before = np.triu(np.ones_like(as_good), 1)  # of equal ones, the first is kept
    beaten = np.any(as_good & (~as_good.T | before), axis=0)
    return tuple(size for at, size in enumerate(sizes) if not beaten[at])
