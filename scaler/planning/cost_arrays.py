"""Costs of many executions and instances, in arrays, by the same rules as for single ones.

The rules of `cost` are implemented here again for arrays; any other rule is called for each
element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from carpool.latency import Resources
from scaler.planning.cost import MB_PER_GB, ROUNDING, FunctionCompute, PayPerUse, Reserved

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from carpool.latency.arrays import Floats, Occupied
    from scaler.planning.cost import Billing, Prices

__all__ = ["executions", "lifetimes"]


def executions(rule: Billing, sizes: Occupied, exec_s: Floats) -> Floats:
    """Return the cost of a batch on each instance, as `Billing.execution` does.

    Args:
        rule: The billing rule.
        sizes: Sizes of instances.
        exec_s: Seconds, of a shape that broadcasts with theirs.
    """
    if type(rule) is PayPerUse:  # a subclass may have another rule
        return _used(rule.prices, sizes, exec_s)
    if type(rule) is FunctionCompute:
        return _used(rule.prices, _sold(sizes), exec_s)
    if type(rule) is Reserved:
        return np.zeros(np.broadcast_shapes(sizes.cpu.shape, exec_s.shape))
    *columns, seconds = np.broadcast_arrays(*sizes, exec_s)
    each = zip(_each(columns), seconds.ravel().tolist(), strict=True)
    return np.reshape([rule.execution(size, at_s) for size, at_s in each], seconds.shape)


def lifetimes(rule: Billing, sizes: Occupied) -> Floats:
    """Return the cost of a second of each instance, as `Billing.lifetime` does.

    Args:
        rule: The billing rule.
        sizes: Sizes of instances, as one-dimensional arrays of equal shape.
    """
    if type(rule) is Reserved:
        return _per_second(rule.prices, sizes)
    if type(rule) in (PayPerUse, FunctionCompute):
        return np.zeros_like(sizes.cpu)
    return np.array([rule.lifetime(size, 1.0) for size in _each(sizes)])


def _each(columns: Iterable[Floats]) -> Iterator[Resources]:
    rows = zip(*(column.ravel().tolist() for column in columns), strict=True)
    return (Resources(*row) for row in rows)


def _used(prices: Prices, sizes: Occupied, exec_s: Floats) -> Floats:
    """Return `PayPerUse.execution` of arrays."""
    steps = (prices.cpu_billing_granularity_s, prices.gpu_billing_granularity_s)
    step_s = np.where(sizes.gpu > 0, steps[1], steps[0])
    coarse = step_s > 0
    whole_s = np.ceil(exec_s / np.where(coarse, step_s, 1.0) - ROUNDING) * step_s
    return _per_second(prices, sizes) * np.where(coarse, whole_s, exec_s) + prices.call


def _per_second(prices: Prices, sizes: Occupied) -> Floats:
    """Return `Prices.per_second` of arrays."""
    by_share = prices.gpu_percent_s * sizes.gpu
    gpu = np.where(sizes.gpu_gb > 0, prices.gpu_gb_s * sizes.gpu_gb, by_share)
    memory = prices.memory_gb_s * sizes.memory_mb / MB_PER_GB
    return np.asarray(prices.cpu_core_s * sizes.cpu + memory + gpu)


def _sold(sizes: Occupied) -> Occupied:
    """Return `FunctionCompute.sold` of arrays."""
    rule, on_gpu = FunctionCompute, sizes.gpu > 0
    needed_mb = np.maximum(sizes.memory_mb, np.where(on_gpu, 0.0, sizes.cpu * MB_PER_GB))
    step_mb = rule.MEMORY_STEP_MB
    memory_mb = np.ceil(needed_mb / step_mb - ROUNDING) * step_mb
    cores = np.maximum(sizes.cpu, memory_mb / MB_PER_GB / rule.MEMORY_GB_PER_CORE)
    shares = np.where(sizes.gpu_gb > 0, sizes.gpu_gb / rule.GPU_GB_PER_CORE, sizes.cpu)
    return sizes._replace(cpu=np.where(on_gpu, shares, cores), memory_mb=memory_mb)
