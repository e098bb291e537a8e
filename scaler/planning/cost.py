"""Prices, and billing rules that turn the use of instances into money.

A rule has two parts: the cost of executing one batch, and the cost of having an instance for as
long as it lives. Rules differ in which of them is zero. A share of a GPU is sold either by its
memory (`Resources.gpu_gb`) or by its percentage, never by both.

Each rule is given for one size, and again for arrays of sizes; the results are the same. Rules of
plug-ins are given for one size only.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from carpool import plugins
from carpool.errors import ConfigError, Problem
from carpool.latency import Resources
from carpool.validation.problems import Problems, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from carpool.latency.arrays import Floats, Occupied
    from carpool.scaling import Billing

__all__ = ["BILLINGS", "MB_PER_GB", "BillingRule", "FunctionCompute", "PayPerUse", "Prices"]
__all__ += ["Reserved", "billing", "lacking_price"]

# Clouds sell memory in binary units and write MB and GB; prices are per such a gigabyte.
MB_PER_GB = 1024

BILLINGS = {
    "pay-per-use": "scaler.planning.cost:PayPerUse",
    "reserved": "scaler.planning.cost:Reserved",
    "function-compute": "scaler.planning.cost:FunctionCompute",
}

_ROUNDING = 1e-9  # 0.3 s is three times 0.1 s, though not in floats


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices in any one currency; all default to 0.

    Attributes:
        billing: Name of the rule in `BILLINGS`, or ``pkg.module:Class``.
        cpu_core_s: One core for a second.
        memory_gb_s: One gigabyte of memory for a second.
        gpu_gb_s: A share of a GPU with one gigabyte of its memory, for a second.
        gpu_percent_s: One percent of a GPU for a second, if it is not sold by memory.
        call: One call, whatever the batch.
        cpu_billing_granularity_s: Executions without a GPU are rounded up to a multiple of it.
        gpu_billing_granularity_s: Executions with a GPU are rounded up to a multiple of it.
        currency: Name of the currency, for display; may be empty.

    Raises:
        ConfigError: A price is negative or not finite.
    """

    billing: str = "pay-per-use"
    cpu_core_s: float = 0.0
    memory_gb_s: float = 0.0
    gpu_gb_s: float = 0.0
    gpu_percent_s: float = 0.0
    call: float = 0.0
    cpu_billing_granularity_s: float = 0.0
    gpu_billing_granularity_s: float = 0.0
    currency: str = ""

    def __post_init__(self) -> None:
        """Refuse prices that are negative or not finite."""
        problems, names = Problems(), [field.name for field in dataclasses.fields(self)[1:-1]]
        problems.check(self, names, lambda v: 0 <= v < math.inf, "a number of at least 0")
        problems.raise_if_any()

    @property
    def given(self) -> bool:
        """Whether any price is set."""
        return dataclasses.replace(self, billing="", currency="") != Prices("")

    def per_second(self, size: Resources) -> float:
        """Return the price of an instance of this size for one second."""
        gpu = self.gpu_gb_s * size.gpu_gb if size.gpu_gb else self.gpu_percent_s * size.gpu
        memory = self.memory_gb_s * size.memory_mb / MB_PER_GB
        return self.cpu_core_s * size.cpu + memory + gpu


def lacking_price(prices: Prices, size: Resources) -> str:
    """Return the price that is missing to compare a size with others; empty if none is.

    If time has no price at all, sizes are compared in resource units. If it has one, resources
    without a price are free, but a size whose time costs nothing at all cannot be billed.
    """
    if not any((prices.cpu_core_s, prices.memory_gb_s, prices.gpu_gb_s, prices.gpu_percent_s)):
        return ""
    if prices.per_second(size):
        return ""
    of_gpu = "gpu_gb_s" if size.gpu_gb else "gpu_percent_s"
    return "cpu_core_s" if size.cpu else of_gpu


class BillingRule(Protocol):
    """A billing rule of a plug-in, constructed with `Prices`."""

    def execution(self, size: Resources, exec_s: float) -> float:
        """Return the cost of a batch that runs for ``exec_s`` on an instance of this size."""

    def lifetime(self, size: Resources, alive_s: float) -> float:
        """Return the cost of having an instance for ``alive_s``, whatever it executes."""


class PayPerUse:
    """Charges calls and execution time of batches, in steps of the granularity; idling is free."""

    def __init__(self, prices: Prices) -> None:
        self.prices = prices

    def execution(self, size: Resources, exec_s: float) -> float:
        """As `scaling.Billing.execution`."""
        prices = self.prices
        step_s = prices.gpu_billing_granularity_s if size.gpu else prices.cpu_billing_granularity_s
        billed_s = math.ceil(exec_s / step_s - _ROUNDING) * step_s if step_s else exec_s
        return prices.per_second(size) * billed_s + prices.call

    def lifetime(self, size: Resources, alive_s: float) -> float:
        """Return 0, as idling is free."""
        del size, alive_s
        return 0.0

    def executions(self, sizes: Occupied, exec_s: Floats) -> Floats:
        """As `scaling.Billing.executions`."""
        prices = self.prices
        steps = (prices.cpu_billing_granularity_s, prices.gpu_billing_granularity_s)
        step_s = np.where(sizes.gpu > 0, steps[1], steps[0])
        coarse = step_s > 0
        whole_s = np.ceil(exec_s / np.where(coarse, step_s, 1.0) - _ROUNDING) * step_s
        return _per_second(prices, sizes) * np.where(coarse, whole_s, exec_s) + prices.call

    def lifetimes(self, sizes: Occupied) -> Floats:
        """Return zeros, as idling is free."""
        return np.zeros_like(sizes.cpu)


class Reserved:
    """Charges the entire life of an instance, by the second; executions are free."""

    def __init__(self, prices: Prices) -> None:
        self.prices = prices

    def execution(self, size: Resources, exec_s: float) -> float:
        """Return 0, as executions are free."""
        del size, exec_s
        return 0.0

    def lifetime(self, size: Resources, alive_s: float) -> float:
        """As `scaling.Billing.lifetime`."""
        return self.prices.per_second(size) * alive_s

    def executions(self, sizes: Occupied, exec_s: Floats) -> Floats:
        """Return zeros, as executions are free."""
        return np.zeros(np.broadcast_shapes(sizes.cpu.shape, exec_s.shape))

    def lifetimes(self, sizes: Occupied) -> Floats:
        """As `scaling.Billing.lifetimes`."""
        return _per_second(self.prices, sizes)


class FunctionCompute:
    """Pay per use as sold by Alibaba Function Compute (the artefact of HarmonyBatch, IWQoS'24).

    A function on m GB of a GPU also pays for m/3 cores and its memory, and for whole seconds (or
    the given granularity). Without a GPU, memory is sold in steps of 64 MB, with at least one GB
    per core, and every four GB come with at least one core.
    """

    MEMORY_STEP_MB = 64
    GPU_GB_PER_CORE = 3
    MEMORY_GB_PER_CORE = 4

    def __init__(self, prices: Prices) -> None:
        whole_seconds = prices.gpu_billing_granularity_s or 1.0
        self.prices = dataclasses.replace(prices, gpu_billing_granularity_s=whole_seconds)
        self._rule = PayPerUse(self.prices)

    def execution(self, size: Resources, exec_s: float) -> float:
        """As `scaling.Billing.execution`."""
        return self._rule.execution(self.sold(size), exec_s)

    def lifetime(self, size: Resources, alive_s: float) -> float:
        """Return 0, as idling is free."""
        return self._rule.lifetime(size, alive_s)

    def executions(self, sizes: Occupied, exec_s: Floats) -> Floats:
        """As `scaling.Billing.executions`."""
        return self._rule.executions(self._each_sold(sizes), exec_s)

    def lifetimes(self, sizes: Occupied) -> Floats:
        """Return zeros, as idling is free."""
        return self._rule.lifetimes(sizes)

    def sold(self, size: Resources) -> Resources:
        """Return the size that has to be bought for an instance of this size."""
        if size.gpu:
            cpu = size.gpu_gb / self.GPU_GB_PER_CORE if size.gpu_gb else size.cpu
            return size._replace(cpu=cpu, memory_mb=self._stepped(size.memory_mb))
        memory_mb = self._stepped(max(size.memory_mb, size.cpu * MB_PER_GB))
        cpu = max(size.cpu, memory_mb / MB_PER_GB / self.MEMORY_GB_PER_CORE)
        return size._replace(cpu=cpu, memory_mb=memory_mb)

    def _each_sold(self, sizes: Occupied) -> Occupied:
        """Return `sold` of arrays."""
        on_gpu = sizes.gpu > 0
        needed_mb = np.maximum(sizes.memory_mb, np.where(on_gpu, 0.0, sizes.cpu * MB_PER_GB))
        memory_mb = np.ceil(needed_mb / self.MEMORY_STEP_MB - _ROUNDING) * self.MEMORY_STEP_MB
        cores = np.maximum(sizes.cpu, memory_mb / MB_PER_GB / self.MEMORY_GB_PER_CORE)
        shares = np.where(sizes.gpu_gb > 0, sizes.gpu_gb / self.GPU_GB_PER_CORE, sizes.cpu)
        return sizes._replace(cpu=np.where(on_gpu, shares, cores), memory_mb=memory_mb)

    def _stepped(self, memory_mb: float) -> float:
        return math.ceil(memory_mb / self.MEMORY_STEP_MB - _ROUNDING) * self.MEMORY_STEP_MB


class _OneByOne:
    """A rule of a plug-in, which is called for each element of arrays."""

    def __init__(self, rule: BillingRule) -> None:
        self.execution = rule.execution
        self.lifetime = rule.lifetime

    def executions(self, sizes: Occupied, exec_s: Floats) -> Floats:
        """As `scaling.Billing.executions`."""
        *columns, seconds = np.broadcast_arrays(*sizes, exec_s)
        each = zip(_each(columns), seconds.ravel().tolist(), strict=True)
        return np.reshape([self.execution(size, at_s) for size, at_s in each], seconds.shape)

    def lifetimes(self, sizes: Occupied) -> Floats:
        """As `scaling.Billing.lifetimes`."""
        return np.array([self.lifetime(size, 1.0) for size in _each(sizes)])


def _per_second(prices: Prices, sizes: Occupied) -> Floats:
    """Return `Prices.per_second` of arrays."""
    by_share = prices.gpu_percent_s * sizes.gpu
    gpu = np.where(sizes.gpu_gb > 0, prices.gpu_gb_s * sizes.gpu_gb, by_share)
    memory = prices.memory_gb_s * sizes.memory_mb / MB_PER_GB
    return np.asarray(prices.cpu_core_s * sizes.cpu + memory + gpu)


def _each(columns: Iterable[Floats]) -> Iterator[Resources]:
    rows = zip(*(column.ravel().tolist() for column in columns), strict=True)
    return (Resources(*row) for row in rows)


def billing(prices: Prices) -> Billing:
    """Return the rule that ``prices`` names.

    Raises:
        ConfigError: There is no such rule.
    """
    name, setting = prices.billing, "billing"
    if name not in BILLINGS and ":" not in name:
        expected = f"one of {', '.join([*BILLINGS, 'pkg.module:Class'])}"
        raise ConfigError([Problem(setting, name, expected, nearest(name, BILLINGS))])
    rule = plugins.load(setting, BILLINGS.get(name, name))(prices)
    return cast("Billing", rule) if name in BILLINGS else _OneByOne(rule)
