"""The table latency model: measurements, interpolated between rows and never beyond them.

The rows of one instance size are a curve over the batch size, linear between neighbouring rows.
For a size between measured ones the curves around it are interpolated, by cores and by GPU share,
if all of them know the batch size. Instances without and with a GPU are different machines: nothing
is interpolated between them. A missing row means that the batch does not fit.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from carpool.latency.model import Configuration, Resources
from carpool.validation import csv_file
from carpool.validation.csv_file import Column
from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["Table", "read_table"]

_COLUMNS = {
    "cpu_threads": Column("a number of threads above 0", lambda value: value > 0),
    "gpu_percent": Column("a percentage from 0 to 100", lambda value: 0 <= value <= 100),  # noqa: PLR2004
    "batch": Column("a whole number of at least 1", lambda value: value >= 1 and value % 1 == 0),
    "latency_ms": Column("a number of milliseconds above 0", lambda value: value > 0),
}
_MS_PER_S = 1000.0


@dataclass(frozen=True)
class Table:
    """Measured latencies, the same at every quantile, as a row holds one number.

    Attributes:
        rows: Seconds by batch, cores and GPU percent.
        load_s: Seconds to load an instance.
        memory_mb: Memory of an instance.
    """

    rows: Mapping[Configuration, float]
    load_s: float = 0.0
    memory_mb: float = 0.0

    def predict(self, batch: int, cpu: float, gpu: float, quantile: float = 0.5) -> float | None:
        """Implement `LatencyModel.predict`."""
        del quantile
        measured = self.rows.get(Configuration(batch, cpu, gpu))
        if measured is not None:
            return measured
        shares = (0.0,) if gpu == 0 else self._gpus
        return _between(
            self._cpus,
            cpu,
            lambda cores: _between(shares, gpu, lambda share: self._on_curve(batch, cores, share)),
        )

    def resources(self, batch: int, cpu: float, gpu: float) -> Resources:
        """Implement `LatencyModel.resources`."""
        del batch
        return Resources(cpu, gpu, self.memory_mb)

    def configurations(self, max_batch: int) -> Iterator[Configuration]:
        """Yield the sizes of the rows, as measured."""
        return (row for row in self.rows if row.batch <= max_batch)

    @cached_property
    def _curves(self) -> dict[tuple[float, float], list[int]]:
        """Measured batch sizes of each instance size, ascending."""
        curves: dict[tuple[float, float], list[int]] = {}
        for row in sorted(self.rows):
            curves.setdefault((row.cpu, row.gpu), []).append(row.batch)
        return curves

    @cached_property
    def _cpus(self) -> list[float]:
        return sorted({row.cpu for row in self.rows})

    @cached_property
    def _gpus(self) -> list[float]:
        return sorted({row.gpu for row in self.rows if row.gpu > 0})

    def _on_curve(self, batch: int, cpu: float, gpu: float) -> float | None:
        batches = self._curves.get((cpu, gpu), ())
        return _between(batches, batch, lambda at: self.rows.get(Configuration(int(at), cpu, gpu)))


def _between(
    axis: Sequence[float], at: float, value: Callable[[float], float | None]
) -> float | None:
    """Return ``value(at)``, interpolated linearly between points on ``axis``; None outside it."""
    right = bisect_left(axis, at)
    if right == len(axis):
        return None
    if axis[right] == at:
        return value(axis[right])
    if right == 0:
        return None
    low, high = value(axis[right - 1]), value(axis[right])
    if low is None or high is None:
        return None
    return low + (high - low) * (at - axis[right - 1]) / (axis[right] - axis[right - 1])


def read_table(path: Path, load_s: float = 0.0, memory_mb: float = 0.0) -> Table:
    """Read a CSV file ``cpu_threads,gpu_percent,batch,latency_ms``.

    Raises:
        ConfigError: all problems found, each with its line.
    """
    problems = Problems()
    rows: dict[Configuration, float] = {}
    first: dict[Configuration, int] = {}
    for number, (cpu, gpu, batch, latency_ms) in csv_file.read(path, _COLUMNS, problems):
        row = Configuration(int(batch), cpu, gpu)
        if first.setdefault(row, number) != number:
            given = f"{cpu:g},{gpu:g},{batch:g}"
            expected = f"a unique row; line {first[row]} has the same threads, GPU and batch"
            problems.add(f"{path}:{number}", given, expected)
        rows[row] = latency_ms / _MS_PER_S
    problems.raise_if_any()
    return Table(rows, load_s, memory_mb)
