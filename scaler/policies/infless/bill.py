"""The price of an instance of each size for a search: resource units, or its part of the bill.

A search compares instances by price. With the aim ``resources`` that is INFless's weight of a core
and a percent of a GPU. With ``cost`` it is the bill of a fully loaded instance: its lifetime, and
the executions that its requests take. The execution cost of a request depends on how full batches
are, and so on the rate of the function: a batch collects the arrivals of ``slo - 2 exec_s``, the
time between its first request and the last moment at which it can leave, up to its maximum size.
The few requests in a large batch that this rate does not fill pay for all of it.

Rates are rounded to steps of a quarter, so that results can be reused for similar rates.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from carpool.scaling import CORE_WEIGHT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.scaling import FunctionLoad, Size

__all__ = ["InstancePrices", "billed_prices", "mean_batch", "rate_step", "unit_prices"]

_STEP = 1.25  # ratio of neighbouring rates
_NEGLIGIBLE = 1e-12  # lowest rate that is distinguished from 0


class InstancePrices(NamedTuple):
    """The price of an instance of each size, in any unit.

    Attributes:
        cores: Part for its cores.
        rest: Part for everything else.
    """

    cores: Mapping[Size, float]
    rest: Mapping[Size, float]

    def at(self, factor: float) -> dict[Size, float]:
        """Return the prices by size, with scarce cores ``factor`` times as expensive."""
        return {size: factor * cores + self.rest[size] for size, cores in self.cores.items()}


def unit_prices(sizes: Sequence[Size], core: float = CORE_WEIGHT) -> InstancePrices:
    """Return prices in percent of a GPU, where a core costs ``core``."""
    return InstancePrices(
        {size: core * size.resources.cpu for size in sizes},
        {size: size.resources.gpu for size in sizes},
    )


def billed_prices(
    sizes: Sequence[Size], load: FunctionLoad, rate_rps: float | None
) -> InstancePrices:
    """Return prices by the function's bill, per second.

    Args:
        sizes: Sizes of its instances.
        load: Load of the function.
        rate_rps: Its arrival rate, rounded by `rate_step`; None if high enough to fill all batches.
    """
    cores, rest = {}, {}
    for size, execution in zip(sizes, _executions(sizes, load, rate_rps), strict=True):
        price = load.billing.lifetime(size.resources, 1.0) + size.rate_rps * execution
        part = _core_share(size, load)
        cores[size], rest[size] = price * part, price * (1 - part)
    if any(cores.values()) or any(rest.values()):
        return InstancePrices(cores, rest)
    return unit_prices(sizes)


def rate_step(load: FunctionLoad) -> float | None:
    """Return the rounded rate if the bill depends on it; None if executions are not paid for."""
    if not (load.sizes and load.billing.execution(load.sizes[0].resources, 1.0)):
        return None
    return _STEP ** round(math.log(max(load.rate_rps, _NEGLIGIBLE), _STEP))


def mean_batch(rate_rps: float, window_s: float, most: int) -> float:
    """Return the mean size of batches with this window: ``E min(B, 1 + Poisson)``."""
    expected = rate_rps * window_s
    if expected > 4 * most:
        return float(most)
    term = at_most = math.exp(-expected)
    mean = 1.0
    for number in range(1, most):
        mean += 1.0 - at_most
        term *= expected / number
        at_most += term
    return mean


def _executions(sizes: Sequence[Size], load: FunctionLoad, rate_rps: float | None) -> list[float]:
    """Return the execution cost per request for each size."""
    times: defaultdict[tuple[float, float, str], list[tuple[int, float]]] = defaultdict(list)
    for size in sizes:
        times[size.cpu, size.gpu, size.variant].append((size.batch, size.exec_s))
    for known in times.values():
        known.sort()
    costs = []
    for size in sizes:
        batch = float(size.batch)
        if rate_rps is not None and size.batch > 1:
            window_s = max(load.tightest_s - 2 * size.exec_s, 0.0)
            batch = mean_batch(rate_rps, window_s, size.batch)
        exec_s = _between(times[size.cpu, size.gpu, size.variant], batch)
        costs.append(load.billing.execution(size.resources, exec_s) / batch)
    return costs


def _between(known: Sequence[tuple[int, float]], batch: float) -> float:
    """Return the execution time of a batch, interpolated; at least that of the smallest known."""
    at = bisect_left(known, (batch, 0.0))
    if at == 0:
        return known[0][1]
    if at == len(known):
        return known[-1][1]
    (low, low_s), (high, high_s) = known[at - 1], known[at]
    return low_s + (high_s - low_s) * (batch - low) / (high - low)


def _core_share(size: Size, load: FunctionLoad) -> float:
    """Return the share of an instance's price that is for cores."""
    price = load.prices.per_second(size.resources)
    bare = load.prices.per_second(size.resources._replace(cpu=0.0))
    return 1 - bare / price if price else 1.0
