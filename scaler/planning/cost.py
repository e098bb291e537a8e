"""What instances cost: prices, and billing rules that turn use into money.

A rule has two answers: what executing one batch costs, and what having an instance costs for as
long as it lives. Which of them is nought is what makes a rule. A share of a GPU is sold either by
its memory (`Resources.gpu_gb`) or by its percentage, never by both.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from carpool import plugins
from carpool.errors import ConfigError, Problem
from carpool.validation.problems import Problems, nearest

if TYPE_CHECKING:
    from carpool.latency import Resources

__all__ = [
    "BILLINGS",
    "MB_PER_GB",
    "ROUNDING",
    "Billing",
    "FunctionCompute",
    "PayPerUse",
    "Prices",
    "Reserved",
]
__all__ += ["billing", "lacking_price"]

# Clouds sell memory in binary units and write MB and GB; prices are per such a gigabyte.
MB_PER_GB = 1024

BILLINGS = {
    "pay-per-use": "scaler.planning.cost:PayPerUse",
    "reserved": "scaler.planning.cost:Reserved",
    "function-compute": "scaler.planning.cost:FunctionCompute",
}

ROUNDING = 1e-9  # 0.3 s is three times 0.1 s, though not in floats


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices in any one currency; all are 0 unless given.

    Attributes:
        billing: The rule's name in `BILLINGS`, or ``pkg.module:Class``.
        cpu_core_s: One core for a second.
        memory_gb_s: One gigabyte of memory for a second.
        gpu_gb_s: A share of a GPU with one gigabyte of its memory, for a second.
        gpu_percent_s: One percent of a GPU for a second, where it is not sold by memory.
        call: One call, whatever the batch.
        cpu_billing_granularity_s: Executions without a GPU are rounded up to a multiple of it.
        gpu_billing_granularity_s: Likewise with a GPU.
        currency: What all are in, for people to read; empty: it is not named.

    Raises:
        ConfigError: a price that is negative or not finite.
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
        """Refuse to earn by computing."""
        problems = Problems()
        for field in dataclasses.fields(self)[1:-1]:
            value = getattr(self, field.name)
            if not 0 <= value < math.inf:
                problems.add(field.name, value, "a number of at least 0")
        problems.raise_if_any()

    @property
    def given(self) -> bool:
        """Whether anything has a price."""
        return dataclasses.replace(self, billing="", currency="") != Prices("")

    def per_second(self, size: Resources) -> float:
        """An instance of this size for one second."""
        gpu = self.gpu_gb_s * size.gpu_gb if size.gpu_gb else self.gpu_percent_s * size.gpu
        memory = self.memory_gb_s * size.memory_mb / MB_PER_GB
        return self.cpu_core_s * size.cpu + memory + gpu


def lacking_price(prices: Prices, size: Resources) -> str:
    """The price without which a size cannot be compared with others; empty: it has all it needs.

    Where time has no price at all, sizes are compared in resource units. Where it has one, a
    resource without a price is free, but a size whose time costs nothing at all has no bill.
    """
    if not any((prices.cpu_core_s, prices.memory_gb_s, prices.gpu_gb_s, prices.gpu_percent_s)):
        return ""
    if prices.per_second(size):
        return ""
    of_gpu = "gpu_gb_s" if size.gpu_gb else "gpu_percent_s"
    return "cpu_core_s" if size.cpu else of_gpu


class Billing(Protocol):
    """A billing rule; constructed with `Prices`."""

    def execution(self, size: Resources, exec_s: float) -> float:
        """What one batch costs that runs for ``exec_s`` on an instance of this size."""

    def lifetime(self, size: Resources, alive_s: float) -> float:
        """What an instance costs that lives for ``alive_s``, whatever it executes."""


class PayPerUse:
    """Execution time of each batch, rounded up to the granularity, and calls; idling is free."""

    def __init__(self, prices: Prices) -> None:
        self.prices = prices

    def execution(self, size: Resources, exec_s: float) -> float:
        """As `Billing.execution`."""
        prices = self.prices
        step_s = prices.gpu_billing_granularity_s if size.gpu else prices.cpu_billing_granularity_s
        billed_s = math.ceil(exec_s / step_s - ROUNDING) * step_s if step_s else exec_s
        return prices.per_second(size) * billed_s + prices.call

    def lifetime(self, size: Resources, alive_s: float) -> float:
        """Nothing."""
        del size, alive_s
        return 0.0


class Reserved:
    """The whole life of an instance, by the second; executing costs nothing more."""

    def __init__(self, prices: Prices) -> None:
        self.prices = prices

    def execution(self, size: Resources, exec_s: float) -> float:
        """Nothing."""
        del size, exec_s
        return 0.0

    def lifetime(self, size: Resources, alive_s: float) -> float:
        """As `Billing.lifetime`."""
        return self.prices.per_second(size) * alive_s


class FunctionCompute:
    """Pay per use as Alibaba Function Compute sold it (the artefact of HarmonyBatch, IWQoS'24).

    A function on m GB of a GPU pays m/3 cores and its memory too, and whole seconds (or the given
    granularity). Without a GPU, memory is sold in steps of 64 MB, at least a GB a core, and at
    least a core comes with four GB.
    """

    MEMORY_STEP_MB = 64
    GPU_GB_PER_CORE = 3
    MEMORY_GB_PER_CORE = 4

    def __init__(self, prices: Prices) -> None:
        whole_seconds = prices.gpu_billing_granularity_s or 1.0
        self.prices = dataclasses.replace(prices, gpu_billing_granularity_s=whole_seconds)
        self._rule = PayPerUse(self.prices)

    def execution(self, size: Resources, exec_s: float) -> float:
        """As `Billing.execution`."""
        return self._rule.execution(self.sold(size), exec_s)

    def lifetime(self, size: Resources, alive_s: float) -> float:
        """Nothing."""
        return self._rule.lifetime(size, alive_s)

    def sold(self, size: Resources) -> Resources:
        """The size that has to be bought for an instance of this size."""
        if size.gpu:
            cpu = size.gpu_gb / self.GPU_GB_PER_CORE if size.gpu_gb else size.cpu
            return size._replace(cpu=cpu, memory_mb=self._stepped(size.memory_mb))
        memory_mb = self._stepped(max(size.memory_mb, size.cpu * MB_PER_GB))
        cpu = max(size.cpu, memory_mb / MB_PER_GB / self.MEMORY_GB_PER_CORE)
        return size._replace(cpu=cpu, memory_mb=memory_mb)

    def _stepped(self, memory_mb: float) -> float:
        return math.ceil(memory_mb / self.MEMORY_STEP_MB - ROUNDING) * self.MEMORY_STEP_MB


def billing(prices: Prices) -> Billing:
    """The rule that ``prices`` names.

    Raises:
        ConfigError: there is no such rule.
    """
    name, setting = prices.billing, "billing"
    if name not in BILLINGS and ":" not in name:
        expected = f"one of {', '.join([*BILLINGS, 'pkg.module:Class'])}"
        raise ConfigError([Problem(setting, name, expected, nearest(name, BILLINGS))])
    return cast("Billing", plugins.load(setting, BILLINGS.get(name, name))(prices))
