"""Latency and cost of every configuration by a latency model and a billing rule, as arrays.

Of configurations that differ only in the instance, those that are both slower and more expensive
than another are left out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from carpool.latency.arrays import Sizes, configurations, occupied, predicted
from carpool.scaling import CORE_WEIGHT

if TYPE_CHECKING:
    from carpool.arrivals.processes import Times
    from carpool.scaling import Billing, LatencyModel

__all__ = ["Priced", "priced"]

_LARGEST = 1 << 32  # larger than any batch
_QUICKER = 0.01  # part of the allowance that a configuration must save if it costs more


class Priced(NamedTuple):
    """Configurations with their requirements and costs; arrays of one shape and one axis.

    Attributes:
        batch, cpu, gpu: The largest batch, and the instance.
        allowance_s: Seconds of every objective that are reserved for the execution.
        least_s: The tightest objective that a full batch meets if no request waits.
        alone: Cost of executing a batch of one.
        full: Cost of executing a full batch.
        alone_s, full_s: Mean seconds of the same.
        price_per_s: Cost of an instance per second.
    """

    batch: Times
    cpu: Times
    gpu: Times
    allowance_s: Times
    least_s: Times
    alone: Times
    full: Times
    alone_s: Times
    full_s: Times
    price_per_s: Times

    @property
    def least(self) -> Times:
        """Cost of a request in a full batch, on instances that are never idle."""
        return (self.full + self.price_per_s * self.full_s) / self.batch


def priced(model: LatencyModel, billing: Billing, max_batch: int, miss: float) -> Priced:
    """Return the configurations that may pay, by the least that a request can cost on them.

    Args:
        model: Latency model of the function.
        billing: What executions and instances cost; if all is free, resources count instead.
        max_batch: Maximum number of requests in a batch.
        miss: Share of requests that may be late.
    """
    sizes = _asked(model, billing, configurations(model, max_batch), miss)
    kept = np.array(_undominated(sizes), dtype=np.intp)
    kept = kept[sizes.least[kept].argsort(kind="stable")]
    return Priced(*(column[kept] for column in sizes))


def _asked(model: LatencyModel, billing: Billing, sizes: Sizes, miss: float) -> Priced:
    """Return the configurations that the model knows well enough, with their costs."""
    # About one request of a batch waits for the whole window.
    hurried = 1 - np.minimum(miss * sizes.batch, max(miss, 0.5))
    full_s, least_s = predicted(model, sizes, np.array([[0.5], [1 - miss]]))
    allowance_s = predicted(model, sizes, hurried)
    # Comparisons with NaN are false, so NaN is not offered.
    good = (full_s > 0) & (full_s < math.inf) & (allowance_s <= least_s) & (least_s < math.inf)
    good &= sizes.cpu > 0
    sizes = Sizes(*(column[good] for column in sizes))
    full_s, allowance_s, least_s = full_s[good], allowance_s[good], least_s[good]
    alone_s = predicted(model, sizes._replace(batch=np.array([1.0])), np.array([0.5]))
    alone_s = np.where(alone_s > 0, alone_s, full_s)
    instances = occupied(model, sizes)
    alone, full = (billing.executions(instances, at) for at in (alone_s, full_s))
    price_per_s = billing.lifetimes(instances)
    units = CORE_WEIGHT * instances.cpu + instances.gpu  # `resource_units`
    free = (full == 0) & (price_per_s == 0)
    alone, full = np.where(free, units * alone_s, alone), np.where(free, units * full_s, full)
    return Priced(*sizes, allowance_s, least_s, alone, full, alone_s, full_s, price_per_s)


def _undominated(priced: Priced) -> list[int]:
    """Return the indices of configurations cheaper than all faster ones of their device and batch.

    The fastest of each device, cores or GPU, and batch size is always included.
    """
    each = priced.least
    devices_and_batches = np.where(priced.gpu > 0, _LARGEST + priced.batch, priced.batch)
    order = np.lexsort((priced.allowance_s, each, devices_and_batches))
    starts = np.flatnonzero(np.diff(devices_and_batches[order], prepend=0.0))
    allowances = priced.allowance_s[order]
    least = np.minimum.reduceat(allowances, starts) if len(starts) else allowances
    lengths = np.diff(starts, append=len(order))
    kept: list[int] = []
    rows = (order, devices_and_batches[order], allowances, np.repeat(least, lengths))
    before, best_s = 0.0, math.inf
    for place, own, allowance_s, least_s in zip(*(row.tolist() for row in rows), strict=True):
        if own != before:
            before, best_s = own, math.inf
        quickest = allowance_s == least_s < best_s
        if allowance_s < best_s * (1 - _QUICKER) or quickest:
            best_s = allowance_s
            kept.append(place)
    return kept
