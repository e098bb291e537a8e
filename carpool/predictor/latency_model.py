"""The operators latency model: a sum over a graph's operators, corrected by what is measured.

ONNX Runtime's sequential executor runs one operator after the other, each on all threads, so a run
takes the sum of its operators and a little for each; with its parallel executor, branches overlap
and the longest path is what no run undercuts. Operators that a database knows are taken from there;
all others follow from their class's law. One measured run of the model settles most of the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from carpool.latency.model import Configuration, Resources
from carpool.predictor.fit import ThreadsAndGpu
from carpool.predictor.operator_groups import Groups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from carpool.predictor.fit import Bounds, Fit
    from carpool.predictor.graph import Case, Graph
    from carpool.predictor.profile import Setting

    Array = NDArray[np.float64]

__all__ = ["Interval", "OperatorLatencyModel"]

_NORMAL = NormalDist()
_BEYOND = 2  # batches up to so many times the largest measured one
_MOST_CORRECTION = math.log(4)


class Interval(NamedTuple):
    """Where the median of runs lies with a probability of 90 %, in seconds."""

    low_s: float
    high_s: float


class _RunError(NamedTuple):
    """log(measured / predicted) of a run of the model itself, and what of it is not the model's."""

    batch: int
    error: float
    excess: float


@dataclass(frozen=True)
class OperatorLatencyModel:
    """Predicts how long a batch of one model takes, by adding up its operators.

    Attributes:
        graph: Its operators.
        fit: What is known of operators.
        known: Seconds of operators that were measured, by case and unit.
        runs: Runs of the model itself that were measured, in seconds.
        load_s: Seconds to load an instance.
        memory_mb: Memory of an instance.
        parallel: Whether branches run in parallel.
    """

    graph: Graph
    fit: Fit
    known: Mapping[tuple[Case, ThreadsAndGpu], float] = field(default_factory=dict)
    runs: Mapping[Setting, float] = field(default_factory=dict)
    load_s: float = 0.0
    memory_mb: float = 0.0
    parallel: bool = False

    def __post_init__(self) -> None:
        """Prepare what every prediction needs."""
        groups = Groups(self.graph)
        corrections = _Corrections(groups, self.fit, self.known)
        cached = lru_cache(maxsize=1024)(self._uncalibrated)
        object.__setattr__(self, "_groups", groups)
        object.__setattr__(self, "_corrections", corrections)
        object.__setattr__(self, "_plain_s", cached)
        object.__setattr__(self, "_errors", self._run_errors())

    _groups: Groups = field(init=False, repr=False, compare=False)
    _corrections: _Corrections = field(init=False, repr=False, compare=False)
    _plain_s: Callable[[ThreadsAndGpu, int], float | None] = field(
        init=False, repr=False, compare=False
    )
    _errors: Mapping[ThreadsAndGpu, Sequence[_RunError]] = field(
        init=False, repr=False, compare=False
    )

    def predict(self, batch: int, cpu: float, gpu: float, quantile: float = 0.5) -> float | None:
        """As `LatencyModel.predict`; fewer cores than threads stretch a run in proportion."""
        unit = ThreadsAndGpu(max(1, round(cpu)), gpu) if cpu > 0 else ThreadsAndGpu(0)
        if unit not in self.fit.per_run_s or not self._admits(batch):
            return None
        plain_s = self._plain_s(unit, batch)
        if plain_s is None:
            return None
        stretched = max(1.0, unit.threads / cpu)
        correction, _ = self._told(unit, batch, plain_s)
        return plain_s * math.exp(correction) * stretched * self._tail(quantile)

    def interval(self, batch: int, cpu: float, gpu: float) -> Interval | None:
        """Where the median lies, by the errors for models that were left out of the fit."""
        middle_s = self.predict(batch, cpu, gpu)
        if middle_s is None:
            return None
        unit = ThreadsAndGpu(max(1, round(cpu)), gpu)
        _, (low, high) = self._told(unit, batch, self._plain_s(unit, batch) or middle_s)
        return Interval(middle_s * math.exp(low), middle_s * math.exp(high))

    def resources(self, batch: int, cpu: float, gpu: float) -> Resources:
        """As `LatencyModel.resources`."""
        del batch
        return Resources(cpu, gpu, self.memory_mb)

    def configurations(self, max_batch: int) -> Iterator[Configuration]:
        """Every batch size on every number of whole cores that was measured."""
        for unit in self.fit.units:
            for batch in range(1, max_batch + 1):
                if self.predict(batch, unit.threads, unit.gpu) is not None:
                    yield Configuration(batch, float(unit.threads), unit.gpu)

    def guessed(self) -> list[str]:
        """Kinds of operators that no profile has, so that others of their family stand in."""
        return self._groups.unknown(self.fit)

    def _admits(self, batch: int) -> bool:
        most = _BEYOND * max(self.fit.batches, default=0)
        return self.graph.admits(batch) and batch <= most

    def _uncalibrated(self, unit: ThreadsAndGpu, batch: int) -> float | None:
        seconds = self._groups.seconds(self.fit, unit, batch)
        if seconds is None:
            return None
        seconds = self._corrections.apply(seconds, unit, batch)
        count = len(self.graph.operators)
        if self.parallel:
            return self.fit.run_s(unit, self._groups.longest_path_s(seconds), count)
        pairs = zip(seconds, self._groups.all, strict=True)
        kernels_s = sum(float(each @ group.counts) for each, group in pairs)
        return self.fit.run_s(unit, kernels_s, count)

    def _run_errors(self) -> dict[ThreadsAndGpu, list[_RunError]]:
        """How far the model's own measured runs are from their predictions."""
        found: dict[ThreadsAndGpu, list[_RunError]] = {}
        for setting, measured_s in sorted(self.runs.items()):
            unit = ThreadsAndGpu(setting.threads, setting.gpu)
            plain_s = self._plain_s(unit, setting.batch) if unit in self.fit.per_run_s else None
            if plain_s:
                error = max(
                    -_MOST_CORRECTION, min(_MOST_CORRECTION, math.log(measured_s / plain_s))
                )
                excess = self.fit.errors_of(unit, plain_s).excess(error)
                found.setdefault(unit, []).append(_RunError(setting.batch, error, excess))
        return found

    def _told(self, unit: ThreadsAndGpu, batch: int, plain_s: float) -> tuple[float, Bounds]:
        """What the model's own runs add to a prediction's logarithm, and what they leave open.

        Runs on the same threads tell it, between batches, else all of them.
        """
        errors = self.fit.errors_of(unit, plain_s)
        same = unit in self._errors
        runs = [self._errors[unit]] if same else list(self._errors.values())
        if not runs:
            return 0.0, errors.plain
        error, excess = np.mean([_between(points, batch) for points in runs], axis=0).tolist()
        apart = min(abs(math.log2(batch / run.batch)) for points in runs for run in points)
        share, bounds = errors.carried(apart, same=same)
        return excess + share * (error - excess), bounds

    def _tail(self, quantile: float) -> float:
        """A run at this quantile over the median one; never below it, as planners rely on it."""
        if quantile <= 0.5 or not self.fit.tails:  # noqa: PLR2004  the median
            return 1.0
        known = [(0.0, 0.0)]
        known += [(_NORMAL.inv_cdf(q), math.log(r)) for q, r in sorted(self.fit.tails.items())]
        scores, logs = zip(*known, strict=True)
        score = _NORMAL.inv_cdf(quantile)
        beyond = max(1.0, score / scores[-1])
        return math.exp(float(np.interp(score, scores, logs)) * beyond)


def _between(points: Sequence[_RunError], batch: int) -> tuple[float, float]:
    """Error and excess at a batch size, on lines between measured ones."""
    batches, *columns = np.array(points, float).T
    at = math.log(batch), np.log(batches)
    error, excess = (float(np.interp(*at, column)) for column in columns)
    return error, excess


class _Corrections:
    """Measured over predicted time of operators that are known, and between known batch sizes."""

    def __init__(
        self, groups: Groups, fit: Fit, known: Mapping[tuple[Case, ThreadsAndGpu], float]
    ) -> None:
        self._logs: dict[ThreadsAndGpu, list[Array]] = {}
        self._batches = [batch for batch in fit.batches if groups.graph.admits(batch)]
        if not known or not self._batches:
            return
        for unit in fit.units:
            columns = [self._column(groups, fit, known, unit, batch) for batch in self._batches]
            if all(column is not None for column in columns):
                stacked = [np.stack(parts) for parts in zip(*columns, strict=True)]
                self._logs[unit] = [_filled(part) for part in stacked]

    def apply(self, seconds: list[Array], unit: ThreadsAndGpu, batch: int) -> list[Array]:
        """The seconds of each group's operators, with what is known of them."""
        logs = self._logs.get(unit)
        if logs is None:
            return seconds
        at = float(np.interp(math.log(batch), np.log(self._batches), range(len(self._batches))))
        low = min(int(at), max(0, len(self._batches) - 2))
        high = min(low + 1, len(self._batches) - 1)
        share = at - low
        return [
            each * np.exp(log[low] * (1 - share) + log[high] * share)
            for each, log in zip(seconds, logs, strict=True)
        ]

    @staticmethod
    def _column(
        groups: Groups,
        fit: Fit,
        known: Mapping[tuple[Case, ThreadsAndGpu], float],
        unit: ThreadsAndGpu,
        batch: int,
    ) -> list[Array] | None:
        seconds = groups.seconds(fit, unit, batch)
        if seconds is None:
            return None
        found = []
        for group, predicted in zip(groups.all, seconds, strict=True):
            measured = [known.get((o.at(batch), unit), math.nan) for o in group.operators]
            found.append(np.log(np.maximum(measured, 1e-7) / np.maximum(predicted, 1e-7)))
        return found


def _filled(logs: Array) -> Array:
    """Unknown ratios from the same operator's known ones at other batch sizes; none at all: 0."""
    for column in logs.T:
        there = np.flatnonzero(~np.isnan(column))
        if len(there):
            column[:] = np.interp(range(len(column)), there, column[there])
        else:
            column[:] = 0.0
    return logs
