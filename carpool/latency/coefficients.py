"""The coefficients latency model: HarmonyBatch's formulas (IWQoS'24, section 3) for CPU and GPU.

On ``c`` cores a batch takes ``scale * exp(-c / decay) + floor`` seconds (Eq. 1), with one set of
coefficients for the mean and one for the time that 99 of 100 batches stay below. On a whole GPU it
takes ``per_item * b + base`` (Eq. 2). A share of ``m`` of the ``M`` slices has the GPU for ``m`` of
every ``M`` time slices and waits for the rest, so a batch is served in turns (Eq. 4 gives its
maximum).

Deviations. The mean on a share is exact for a batch that arrives at any moment of the cycle; the
paper's Eq. 3, ``M / m`` times the whole GPU's latency, is off by up to a quarter. The maximum on a
share is multiplied by ``max_margin``, which is not in Eq. 4 and is in the figures of the paper's
evaluation. Between and beyond mean and maximum the latency is normal, as in the authors' runtime.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from statistics import NormalDist
from typing import TYPE_CHECKING

from carpool.latency.model import Configuration, Resources

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["GB_PER_CORE", "MAX_CORES", "ROUNDING", "STEPS_PER_CORE", "WHOLE_GPU"]
__all__ += ["Coefficients", "CpuCoefficients", "Curve", "GpuCoefficients", "deviations"]

STEPS_PER_CORE = 20  # cores are sold in steps of 0.05
MAX_CORES = 16
WHOLE_GPU = 100.0
ROUNDING = 1e-9  # a percentage is a float; a slice is whole
GB_PER_CORE = 3  # GPU memory that comes with one core
_NORMAL = NormalDist()
_MAX_SCORE = _NORMAL.inv_cdf(0.99)  # quantile that the coefficients call the maximum


@lru_cache(maxsize=1024)
def deviations(quantile: float) -> float:
    """Return the distance of a quantile from the mean, in units of that of the maximum."""
    if quantile == 0.5:  # noqa: PLR2004  the median
        return 0.0
    return _NORMAL.inv_cdf(quantile) / _MAX_SCORE


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds by number of cores: exponential decay towards a floor."""

    scale: float
    decay_cores: float
    floor: float

    def at(self, cores: float) -> float:
        """Return the seconds on a number of cores (Eq. 1)."""
        return self.scale * math.exp(-cores / self.decay_cores) + self.floor


@dataclass(frozen=True, slots=True)
class CpuCoefficients:
    """Coefficients of instances without a GPU.

    Attributes:
        mean_s: Curve of the mean, by batch size.
        max_s: Curve that 99 of 100 batches stay below, for the same batch sizes.
        memory_per_item_mb: Memory added by each item of a batch.
        memory_base_mb: Memory of the model itself.
    """

    mean_s: Mapping[int, Curve]
    max_s: Mapping[int, Curve]
    memory_per_item_mb: float
    memory_base_mb: float


@dataclass(frozen=True, slots=True)
class GpuCoefficients:
    """Coefficients of instances on a share of a GPU, which is sold by the gigabyte of its memory.

    Attributes:
        per_item_s: Seconds added by each item on a whole GPU.
        base_s: Seconds of a batch on a whole GPU that do not depend on its size.
        time_slice_s: Duration of one slice.
        total_slices: Slices in a cycle, and gigabytes of GPU memory.
        batch_thresholds: Batch sizes above which one more gigabyte is needed.
        memory_mb: Main memory of an instance.
        max_margin: Factor on the maximum of a share.
        max_batch: Largest batch for which the coefficients are valid.
    """

    per_item_s: float
    base_s: float
    time_slice_s: float
    total_slices: int
    batch_thresholds: tuple[int, ...] = ()
    memory_mb: float = 0.0
    max_margin: float = 1.2
    max_batch: int = 32

    def slices(self, percent: float) -> int:
        """Return the number of whole slices in a percentage of the GPU."""
        return math.floor(percent / WHOLE_GPU * self.total_slices + ROUNDING)

    def least_slices(self, batch: int) -> int:
        """Return the gigabytes, and thus slices, that a batch needs."""
        return bisect_left(self.batch_thresholds, batch) + 1

    def whole_s(self, batch: int) -> float:
        """Return the seconds on a whole GPU (Eq. 2)."""
        return self.per_item_s * batch + self.base_s

    def min_s(self, batch: int, slices: int) -> float:
        """Return the seconds of a batch that arrives as its turn begins (Eq. 4)."""
        turns = math.ceil(self.whole_s(batch) / (slices * self.time_slice_s) - ROUNDING)
        return self.whole_s(batch) + (turns - 1) * self._pause_s(slices)

    def mean_s(self, batch: int, slices: int) -> float:
        """Return the mean seconds of a batch that arrives at any moment of the cycle.

        With turns of length t, pauses g and f of work left in the last turn, a batch that arrives
        in a pause waits g/2 on average, and one that arrives in the last f of a turn needs another.
        """
        work, turn, pause = self.whole_s(batch), slices * self.time_slice_s, self._pause_s(slices)
        last = work - (math.ceil(work / turn - ROUNDING) - 1) * turn
        wait = pause * (last + pause / 2) / (turn + pause)
        return self.min_s(batch, slices) + wait

    def max_s(self, batch: int, slices: int) -> float:
        """Return the seconds of a batch that has just missed its turn (Eq. 4), with the margin."""
        margin = self.max_margin if slices < self.total_slices else 1.0
        return margin * (self.min_s(batch, slices) + self._pause_s(slices))

    def _pause_s(self, slices: int) -> float:
        return (self.total_slices - slices) * self.time_slice_s


@dataclass(frozen=True, slots=True)
class Coefficients:
    """A fitted model; either half may be missing.

    Attributes:
        cpu: Coefficients of instances without a GPU.
        gpu: Coefficients of instances on a share of a GPU.
        load_s: Seconds to load an instance.
    """

    cpu: CpuCoefficients | None
    gpu: GpuCoefficients | None
    load_s: float = 0.0

    def predict(self, batch: int, cpu: float, gpu: float, quantile: float = 0.5) -> float | None:
        """Implement `LatencyModel.predict`; cores do not matter on a GPU."""
        bounds = self._least_mean_max(batch, cpu, gpu)
        if bounds is None:
            return None
        least, mean, most = bounds
        return max(least, mean + max(0.0, most - mean) * deviations(quantile))

    def resources(self, batch: int, cpu: float, gpu: float) -> Resources:
        """Implement `LatencyModel.resources`."""
        if gpu > 0 and self.gpu:
            return Resources(cpu, gpu, self.gpu.memory_mb, float(self.gpu.slices(gpu)))
        if self.cpu is None:
            return Resources(cpu, gpu)
        memory_mb = self.cpu.memory_per_item_mb * batch + self.cpu.memory_base_mb
        return Resources(cpu, gpu, memory_mb)

    def configurations(self, max_batch: int) -> Iterator[Configuration]:
        """Yield the paper's search space: cores in steps of 0.05, whole slices with their cores."""
        return chain(self._on_cores(max_batch), self._on_slices(max_batch))

    def _on_cores(self, max_batch: int) -> Iterator[Configuration]:
        for batch in sorted(self.cpu.mean_s) if self.cpu else ():
            if batch <= max_batch:
                for step in range(1, MAX_CORES * STEPS_PER_CORE + 1):
                    yield Configuration(batch, step / STEPS_PER_CORE, 0.0)

    def _on_slices(self, max_batch: int) -> Iterator[Configuration]:
        if self.gpu is None:
            return
        for batch in range(1, min(max_batch, self.gpu.max_batch) + 1):
            for slices in range(self.gpu.least_slices(batch), self.gpu.total_slices + 1):
                percent = WHOLE_GPU * slices / self.gpu.total_slices
                yield Configuration(batch, slices / GB_PER_CORE, percent)

    def _least_mean_max(
        self, batch: int, cpu: float, gpu: float
    ) -> tuple[float, float, float] | None:
        if gpu > 0:
            return self._on_gpu(batch, gpu)
        if self.cpu is None or batch not in self.cpu.mean_s or gpu < 0:
            return None
        if not 1 / STEPS_PER_CORE <= cpu <= MAX_CORES:
            return None
        mean = self.cpu.mean_s[batch]
        return mean.floor, mean.at(cpu), self.cpu.max_s[batch].at(cpu)

    def _on_gpu(self, batch: int, gpu: float) -> tuple[float, float, float] | None:
        if self.gpu is None or not 1 <= batch <= self.gpu.max_batch or gpu > WHOLE_GPU:
            return None
        slices = self.gpu.slices(gpu)
        if slices < self.gpu.least_slices(batch):
            return None
        sizes = (batch, slices)
        return self.gpu.min_s(*sizes), self.gpu.mean_s(*sizes), self.gpu.max_s(*sizes)
