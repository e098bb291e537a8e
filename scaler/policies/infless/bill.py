"""What an instance of each size is worth saving: resource units, or its part of the bill.

A search compares instances by price. With the aim ``resources`` that is INFless's weight of a core
and a percent of a GPU. With ``cost`` it is what the bill says of an instance that takes all it can:
its lifetime, and the executions that this takes. What an execution costs each request depends on
how full batches are, and that on the rate of the function: between the first request of a batch and
the last moment at which it can leave, ``slo - 2 exec_s``, so many come, and no more than the batch
holds. A large batch that this rate does not fill is paid for by the few requests in it.

Rates are rounded to steps of a quarter, so that what is found for one serves its neighbours.
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

_STEP = 1.25  # from one rate to the next
_NEGLIGIBLE = 1e-12  # of a Poisson number


class InstancePrices(NamedTuple):
    """What an instance of each size costs, in any unit.

    Attributes:
        cores: For its cores.
        rest: For all else.
    """

    cores: Mapping[Size, float]
    rest: Mapping[Size, float]

    def at(self, factor: float) -> dict[Size, float]:
        """By size, where cores are so many times as dear, as they are scarce."""
        return {size: factor * cores + self.rest[size] for size, cores in self.cores.items()}


def unit_prices(sizes: Sequence[Size], core: float = CORE_WEIGHT) -> InstancePrices:
    """In percent of a GPU, with so many for a core."""
    return InstancePrices(
        {size: core * size.resources.cpu for size in sizes},
        {size: size.resources.gpu for size in sizes},
    )


def billed_prices(
    sizes: Sequence[Size], load: FunctionLoad, rate_rps: float | None
) -> InstancePrices:
    """By the function's bill, per second.

    Args:
        sizes: Of its instances.
        load: The function.
        rate_rps: Of its requests, as `rate_step` rounds it; None: more than enough to fill batches.
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
    """The function's rate as far as its bill depends on it: only where executions are paid for."""
    if not (load.sizes and load.billing.execution(load.sizes[0].resources, 1.0)):
        return None
    return _STEP ** round(math.log(max(load.rate_rps, _NEGLIGIBLE), _STEP))


def mean_batch(rate_rps: float, window_s: float, most: int) -> float:
    """Requests in a batch that waits so long for company: ``E min(B, 1 + Poisson)``."""
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
    """What the executions of each size cost for a request."""
    times: defaultdict[tuple[float, float, str], list[tuple[int, float]]] = defaultdict(list)
    for size in sizes:
        times[size.cpu, size.gpu, size.variant].append((size.batch, size.exec_s))
    for known in times.values():
        known.sort()
    found = []
    for size in sizes:
        batch = float(size.batch)
        if rate_rps is not None and size.batch > 1:
            window_s = max(load.tightest_s - 2 * size.exec_s, 0.0)
            batch = mean_batch(rate_rps, window_s, size.batch)
        exec_s = _between(times[size.cpu, size.gpu, size.variant], batch)
        found.append(load.billing.execution(size.resources, exec_s) / batch)
    return found


def _between(known: Sequence[tuple[int, float]], batch: float) -> float:
    """The execution time of a batch between those that are known; of a smaller one the least."""
    at = bisect_left(known, (batch, 0.0))
    if at == 0:
        return known[0][1]
    if at == len(known):
        return known[-1][1]
    (low, low_s), (high, high_s) = known[at - 1], known[at]
    return low_s + (high_s - low_s) * (batch - low) / (high - low)


def _core_share(size: Size, load: FunctionLoad) -> float:
    """Which part of an instance's price is for cores."""
    price = load.prices.per_second(size.resources)
    bare = load.prices.per_second(size.resources._replace(cpu=0.0))
    return 1 - bare / price if price else 1.0
