"""Finds the cheapest cover for every function, at prices at which all of them fit.

Theory of operation
-------------------
A round has three stages. The first finds the price of a core, in percent of a GPU: INFless's
weight, or if the instances that are then best do not fit on the servers, a price at which they do.
(It is the dual variable of the linear program "least resources that serve all rates". Prices
are tried on a grid; as in the program's solution, a part of each rate is bought at the price on
either side.) With the aim ``cost`` instances have the prices of the bill (`bill`), and if they do
not fit, cores are assumed to be more expensive, or cheaper, than it says. With the aim ``servers``
it is the price at which cores and GPUs run out together, so that as few servers as possible are
used.

The second finds every function's cover at that price (`covering`) and places it by best fit: large
shares of GPUs first, so that instances without a GPU fill the cores left beside them. The third
covers what did not fit by the sizes that still fit, starting with the cheapest.

The price is found without looking at individual servers, so some rate may be left over while there
is capacity of another kind. Then more expensive cores are tried, and the best attempt counts.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple

from carpool.recent import Recent, Same
from scaler.policies.infless.bill import billed_prices, rate_step, unit_prices
from scaler.policies.infless.covering import PricedSizes, undominated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from carpool.scaling import ClusterView, Size
    from scaler.policies.common.draft import Draft
    from scaler.policies.infless.covering import CoverDemand

__all__ = ["Aim", "PricedSearch", "Task"]

Aim = Literal["resources", "cost", "servers"]

_GRID = [2.0 ** (step / 2) for step in range(-10, 21)]  # prices of a core, as multiples of its cost
_PLAIN = 10  # index of the cost itself in the grid
_FURTHER = (0, 2, 6)  # steps up the grid that are tried while some rate is unserved
_ROUNDING = 1e-9
_KEPT = 8192  # price lists that are cached, a few for each function
_NONE_FREE = 1e9  # price of a resource of which nothing is free; finite for calculations


class Task(NamedTuple):
    """A function's draft, its demand, and how many more instances it may have."""

    draft: Draft
    demand: CoverDemand
    limit: float = math.inf


class _Price(NamedTuple):
    """An index in the grid, and the part of each function's demand bought at the price below it."""

    at: int
    below: float = 0.0


class _Attempt(NamedTuple):
    """Instances added for each task at one price, and the rate still not served."""

    added: list[Counter[Size]]
    missing_rps: float
    cluster: ClusterView


class PricedSearch:
    """Adds instances to drafts; caches computed prices and sizes for the next round."""

    def __init__(self, aim: Aim = "resources") -> None:
        self._aim = aim
        self._priced: Recent[PricedSizes] = Recent(_KEPT)
        self._useful_of: Recent[tuple[Size, ...]] = Recent(_KEPT)

    def add(self, tasks: Sequence[Task], cluster: ClusterView) -> ClusterView:
        """Add to the drafts what is missing and fits.

        Returns:
            A copy of the cluster with all of it placed.
        """
        first = self._first_price(tasks, cluster)
        best = self._attempt(tasks, first, cluster)
        for further in _FURTHER:
            if best.missing_rps:
                price = _Price(min(first.at + further, len(_GRID) - 1))
                other = self._attempt(tasks, price, cluster)
                best = other if other.missing_rps < best.missing_rps else best
        for task, added in zip(tasks, best.added, strict=True):
            task.draft.instances += added
            task.draft.needed_rps = task.demand.having(task.draft.instances).needed_rps
        return best.cluster

    def _attempt(self, tasks: Sequence[Task], price: _Price, cluster: ClusterView) -> _Attempt:
        """Cover every task at one price, and place what fits on a copy of the cluster."""
        cluster = cluster.copy()
        priced = [self._priced_sizes(task, price.at) for task in tasks]
        added: list[Counter[Size]] = [Counter() for _ in tasks]
        wanted: list[tuple[Size, int, int]] = []
        for number, task in enumerate(tasks):
            cover = self._cover(task, price)
            wanted += [(size, count, number) for size, count in cover.items()]
        wanted.sort(key=lambda entry: (-entry[0].resources.gpu, -entry[0].units))
        short: set[int] = set()
        for size, count, number in wanted:
            placed = cluster.place_up_to(size.resources, count)
            added[number][size] += placed
            if placed < count:
                short.add(number)
        for number in sorted(short):
            _fill(tasks[number], added[number], priced[number], cluster)
        missing = [_missing_rps(tasks[number], added[number]) for number in short]
        return _Attempt(added, math.fsum(missing), cluster)

    def _cover(self, task: Task, price: _Price) -> Counter[Size]:
        """Return a task's cover: whole instances for the part bought cheaper, and the rest."""
        priced_sizes = self._priced_sizes(task, price.at)
        first: Counter[Size] = Counter()
        if price.below:
            cheaper = self._priced_sizes(task, price.at - 1)
            if self._best(task, price.at - 1) is not self._best(task, price.at):
                cover = cheaper.cover(task.demand, task.limit)
                for size, count in cover.instances.items() if cover else ():
                    first[size] = math.floor(count * price.below)
        demand = task.demand.having(task.draft.instances + first)
        rest = priced_sizes.cover(demand, task.limit - first.total())
        return +first + (rest.instances if rest else Counter())

    def _first_price(self, tasks: Sequence[Task], cluster: ClusterView) -> _Price:
        """Return the price to start with: the plain one if everything fits at that."""
        if not cluster.nodes:
            return _Price(_PLAIN)
        free_cores, free_gpu = cluster.free()
        rates = [self._rate_to_add(task) for task in tasks]

        def shares(at: int) -> tuple[float, float]:
            cores, gpu = self._taken(tasks, rates, at)
            return _share(cores, free_cores), _share(gpu, free_gpu)

        cores, gpu = shares(_PLAIN)
        if self._aim == "servers":
            return _crossing(lambda at: shares(at)[0] - shares(at)[1])
        if cores > 1:
            return _crossing(lambda at: shares(at)[0] - 1)
        return _crossing(lambda at: 1 - shares(at)[1]) if gpu > 1 else _Price(_PLAIN)

    def _taken(self, tasks: Sequence[Task], rates: Sequence[float], at: int) -> tuple[float, float]:
        """Return cores and GPU percent if every task got a fractional number of its best size."""
        cores = gpu = 0.0
        for task, rate_rps in zip(tasks, rates, strict=True):
            best = self._best(task, at)
            if best and rate_rps:
                cores += best.resources.cpu * rate_rps / best.rate_rps
                gpu += best.resources.gpu * rate_rps / best.rate_rps
        return cores, gpu

    def _rate_to_add(self, task: Task) -> float:
        """Estimate the throughput to add, with the reserve for the best size at plain prices."""
        best = self._best(task, _PLAIN)
        beyond = task.demand.beyond_kept(best) if best else 0.0
        bare = task.demand.rate_rps - task.demand.kept_rps
        return max(beyond if beyond < math.inf else bare, 0.0)

    def _best(self, task: Task, at: int) -> Size | None:
        """Return the size with the lowest price for a request per second."""
        return self._priced_sizes(task, at).best

    def _useful(self, sizes: tuple[Size, ...]) -> tuple[Size, ...]:
        """Return the sizes worth trying."""
        return self._useful_of.of(Same(sizes), lambda: undominated(sizes))

    def _priced_sizes(self, task: Task, at: int) -> PricedSizes:
        useful, load = self._useful(task.draft.sizes), task.draft.load
        if self._aim != "cost":
            return self._priced.of(
                (Same(useful), at), lambda: PricedSizes(unit_prices(useful).at(_GRID[at]))
            )
        rate_rps = rate_step(load)
        key = (Same(useful), at, Same(load.billing), rate_rps, load.tightest_s)
        return self._priced.of(
            key,
            lambda: PricedSizes(
                billed_prices(useful, load, rate_rps).at(_GRID[at]), by_use=rate_rps is not None
            ),
        )


def _crossing(cores_over: Callable[[int], float]) -> _Price:
    """Return the grid place at which ``cores_over``, which falls with the price, crosses 0."""
    last = len(_GRID) - 1
    at = bisect_left(range(last), 0.0, key=lambda place: -cores_over(place))
    over = cores_over(at)
    if at == 0 or over > 0:
        return _Price(at)
    return _Price(at, -over / (cores_over(at - 1) - over))


def _share(taken: float, free: float) -> float:
    if taken <= 0:
        return 0.0
    return taken / free if free > 0 else _NONE_FREE


def _missing_rps(task: Task, added: Counter[Size]) -> float:
    having = task.demand.having(task.draft.instances + added)
    missing = having.needed_rps - having.kept_rps
    return missing if missing > _ROUNDING * having.needed_rps else 0.0


def _fill(
    task: Task, added: Counter[Size], priced_sizes: PricedSizes, cluster: ClusterView
) -> None:
    """Serve what is missing with sizes that still fit, cheapest for all of it first."""
    while added.total() < task.limit and _missing_rps(task, added):
        demand = task.demand.having(task.draft.instances + added)
        chosen, lowest, count = None, math.inf, 0
        for size in priced_sizes.sizes:
            instances = max(demand.beyond_kept(size) / size.rate_rps, 1.0)
            price = priced_sizes.price(size) * instances
            if price < lowest and cluster.best_fit(size.resources) is not None:
                chosen, lowest, count = size, price, math.floor(instances)
        if chosen is None:
            return
        most = min(count, task.limit - added.total())
        added[chosen] += cluster.place_up_to(chosen.resources, int(most))
