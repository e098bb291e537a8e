"""The linear latency model: a base plus a time per item, regardless of the instance's size."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool.latency.model import Configuration, Resources
from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Linear"]


@dataclass(frozen=True, slots=True)
class Linear:
    """``base_s + per_item_s * batch`` at every quantile.

    Attributes:
        base_s: Seconds of a batch that do not depend on its size.
        per_item_s: Seconds added by each item.
        cpu: Cores of an instance, for planners that choose sizes; the latency is the same on any.
        gpu: Percent of a GPU of an instance, likewise.
        load_s: Seconds to load an instance.
        memory_mb: Memory of an instance.

    Raises:
        ConfigError: a number is negative, or batches take no time.
    """

    base_s: float
    per_item_s: float
    cpu: float = 1.0
    gpu: float = 0.0
    load_s: float = 0.0
    memory_mb: float = 0.0

    def __post_init__(self) -> None:
        """Check that the numbers are possible."""
        problems = Problems()
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not 0 <= value < math.inf:
                problems.add(field.name, value, "a number of at least 0")
        if self.base_s == self.per_item_s == 0:
            problems.add("base_s", 0, "a number above 0, here or in per_item_s")
        problems.raise_if_any()

    def predict(self, batch: int, cpu: float, gpu: float, quantile: float = 0.5) -> float | None:
        """Implement `LatencyModel.predict`, for any size with some of a core or a GPU."""
        del quantile
        if batch < 1 or not max(cpu, gpu) > 0:
            return None
        return self.base_s + self.per_item_s * batch

    def resources(self, batch: int, cpu: float, gpu: float) -> Resources:
        """Implement `LatencyModel.resources`."""
        del batch
        return Resources(cpu, gpu, self.memory_mb)

    def configurations(self, max_batch: int) -> Iterator[Configuration]:
        """Yield all batch sizes on the only instance size."""
        return (Configuration(batch, self.cpu, self.gpu) for batch in range(1, max_batch + 1))
