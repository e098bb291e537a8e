"""Poisson and traced arrival processes, and the protocol of all arrival processes.

Pure and seeded. Arrivals are drawn on the axis of the accumulated rate, where they are a Poisson
process of rate one, and mapped back to time; a change of rate within a gap needs no special case.
They are produced in chunks of arrays, so that millions of them are never in memory at once, and the
concatenated chunks are the same for every horizon.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from carpool.arrivals import trace_file
from carpool.scaling import Arrivals
from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["ArrivalProcess", "Poisson", "Seed", "Times", "Trace", "read_trace", "timestamps"]

Times: TypeAlias = npt.NDArray[np.float64]
Seed: TypeAlias = "int | Sequence[int]"  # to numpy 1 and (1, 0) are the same

_CHUNK = 65536


class ArrivalProcess(Arrivals, Protocol):
    """Arrival process of one application's requests, of which samples can be drawn."""

    def rate(self, at_s: float) -> float:
        """Return the expected requests per second at a time."""

    def chunks(self, until_s: float, seed: Seed) -> Iterator[Times]:
        """Yield arrival times before ``until_s``, ascending, in arrays of bounded size."""


def timestamps(process: ArrivalProcess, until_s: float, seed: Seed) -> Times:
    """Return all arrival times before ``until_s`` in one array."""
    return np.concatenate([np.empty(0), *process.chunks(until_s, seed)])


@dataclass(frozen=True, slots=True)
class Poisson:
    """A Poisson process with a constant rate.

    Raises:
        ConfigError: The rate is negative or not finite.
    """

    rate_rps: float

    def __post_init__(self) -> None:
        """Refuse an invalid rate."""
        problems = Problems()
        if not 0 <= self.rate_rps < math.inf:
            problems.add("rate", self.rate_rps, "a rate of at least 0")
        problems.raise_if_any()

    @property
    def mean_rate(self) -> float:
        """As `Arrivals.mean_rate`."""
        return self.rate_rps

    @property
    def phase_rates(self) -> None:
        """None, as there is only one phase."""

    def rate(self, at_s: float) -> float:
        """As `ArrivalProcess.rate`."""
        del at_s
        return self.rate_rps

    def chunks(self, until_s: float, seed: Seed) -> Iterator[Times]:
        """As `ArrivalProcess.chunks`."""
        if self.rate_rps == 0:
            return
        for points in _unit_rate(seed):
            times = points / self.rate_rps
            yield times[: np.searchsorted(times, until_s)]
            if times[-1] >= until_s:
                return


@dataclass(frozen=True, slots=True)
class Trace:
    """A Poisson process whose rate is a step function of time; nothing arrives after its end.

    Attributes:
        starts_s, rates_rps, end_s: As in `trace_file.Rates`.
    """

    starts_s: tuple[float, ...]
    rates_rps: tuple[float, ...]
    end_s: float

    @property
    def mean_rate(self) -> float:
        """Mean rate over the whole trace."""
        return float(self._accumulated()[-1]) / self.end_s

    @property
    def phase_rates(self) -> None:
        """None, as the rate is known at any time."""

    def rate(self, at_s: float) -> float:
        """As `ArrivalProcess.rate`."""
        if not 0 <= at_s < self.end_s:
            return 0.0
        return self.rates_rps[bisect_right(self.starts_s, at_s) - 1]

    def chunks(self, until_s: float, seed: Seed) -> Iterator[Times]:
        """As `ArrivalProcess.chunks`."""
        starts, rates = np.array(self.starts_s), np.array(self.rates_rps)
        ends, accumulated = np.append(starts[1:], self.end_s), self._accumulated()
        for points in _unit_rate(seed):
            inside = points[: np.searchsorted(points, accumulated[-1])]
            step = np.searchsorted(accumulated, inside, side="right") - 1  # never one of rate 0
            times = starts[step] + (inside - accumulated[step]) / rates[step]
            times = np.minimum(times, ends[step])  # rounding must not overtake the next step
            yield times[: np.searchsorted(times, until_s)]
            if len(inside) < len(points) or times[-1] >= until_s:
                return

    def _accumulated(self) -> Times:
        """Return the expected number of requests before each start, and in total."""
        lengths = np.diff(np.append(self.starts_s, self.end_s))
        return np.concatenate([[0.0], np.cumsum(lengths * self.rates_rps)])


def read_trace(path: Path, scale: float = 1.0) -> Trace:
    """Return the process of a trace file, as `trace_file.read` reads it.

    Raises:
        ConfigError: All errors in the file, each with its line.
    """
    return Trace(*trace_file.read(path, scale))


def _unit_rate(seed: Seed) -> Iterator[Times]:
    """Yield the points of an endless Poisson process of rate one."""
    draw = np.random.default_rng(seed)
    last = 0.0
    while True:
        points = last + np.cumsum(draw.standard_exponential(_CHUNK))
        last = float(points[-1])
        yield points
