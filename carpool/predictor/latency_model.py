"""The operators latency model: a sum over a graph's operators, corrected by what is measured.

ONNX Runtime's sequential executor runs one operator after the other, each on all threads, so a run
takes the sum of its operators and a little for each; with its parallel executor, branches overlap
and the longest path is what no run undercuts. Operators that were measured, in other models or
alone, are taken from there; all others follow from their class's law. One measured run of the model
settles most of the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from carpool.latency.model import Configuration, Resources
from carpool.predictor.corrections import Corrections
from carpool.predictor.fit import ThreadsAndGpu
from carpool.predictor.intervals import (
    CALIBRATED,
    FOREIGN,
    GUESSED,
    LEVELLED,
    Part,
    combined,
    from_far,
    measured,
    scaling,
)
from carpool.predictor.operator_groups import Groups

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from carpool.predictor.fit import Bounds, Fit
    from carpool.predictor.graph import Case, Graph
    from carpool.predictor.profile import Setting

    Array = NDArray[np.float64]

__all__ = ["Interval", "OperatorLatencyModel", "Source"]

_NORMAL = NormalDist()
_BEYOND = 2  # batches up to so many times the largest measured one
_MOST_CORRECTION = math.log(4)
_LEAST_S = 1e-9


class Interval(NamedTuple):
    """Where the median of runs lies with a probability of 90 %, in seconds."""

    low_s: float
    high_s: float


class Source(NamedTuple):
    """Where the time of equal operators of a graph is from.

    Attributes:
        kind: Of the operators.
        shapes: Of their inputs and outputs.
        number: How many there are.
        seconds: All of them together.
        source: ``measured``, on the machine that is predicted for, or ``predicted``.
    """

    kind: str
    shapes: str
    number: int
    seconds: float
    source: str


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
        known: Seconds of operators that were measured on the machine that is predicted for, by
            case and unit.
        elsewhere: Likewise on another machine, which the fit is from; None: it is from this one.
        overheads: Numbers of threads for which it was measured here what a run costs besides.
        runs: Runs of the model itself that were measured, in seconds.
        load_s: Seconds to load an instance.
        memory_mb: Memory of an instance.
        parallel: Whether branches run in parallel.
        refused: Operators that the runtime does not run alone on that machine.
        least: The model where each If goes the quicker way; this one is where it goes the other.
        groups: Of the graph, if they are known already.
        learnt: What the fit was before it was scaled to the machine that is predicted for; None: as
            it is.
        calibrated: Numbers of threads for which it was scaled.
    """

    graph: Graph
    fit: Fit
    known: Mapping[tuple[Case, ThreadsAndGpu], float] = field(default_factory=dict)
    elsewhere: Mapping[tuple[Case, ThreadsAndGpu], float] | None = None
    overheads: frozenset[int] = frozenset()
    runs: Mapping[Setting, float] = field(default_factory=dict)
    load_s: float = 0.0
    memory_mb: float = 0.0
    parallel: bool = False
    refused: Collection[tuple[Case, ThreadsAndGpu]] = ()
    least: OperatorLatencyModel | None = None
    groups: Groups | None = field(default=None, repr=False, compare=False)
    learnt: Fit | None = field(default=None, repr=False, compare=False)
    calibrated: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        """Prepare what every prediction needs."""
        known = self.groups if self.groups and self.groups.graph is self.graph else None
        groups = known or Groups(self.graph)
        learnt = self.learnt or self.fit
        corrections = Corrections(groups, self.fit, self.elsewhere, self.known, learnt)
        cached, seconds = (
            lru_cache(maxsize=size)(of)
            for size, of in ((1024, self._uncalibrated), (64, self._timed))
        )
        object.__setattr__(self, "_groups", groups)
        object.__setattr__(self, "_corrections", corrections)
        object.__setattr__(self, "_plain_s", cached)
        object.__setattr__(self, "_seconds", seconds)

    _groups: Groups = field(init=False, repr=False, compare=False)
    _corrections: Corrections = field(init=False, repr=False, compare=False)
    _plain_s: Callable[[ThreadsAndGpu, int], float | None] = field(
        init=False, repr=False, compare=False
    )
    _seconds: Callable[[ThreadsAndGpu, int], list[Array]] = field(
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
        least = self.least.interval(batch, cpu, gpu) if self.least else None
        low_s = middle_s * math.exp(low)
        return Interval(min(low_s, least.low_s) if least else low_s, middle_s * math.exp(high))

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
        """Kinds of operators that nobody measured, so that others of their family stand in."""
        return self._lacking(self._groups.guessed)

    def operator_seconds(self, batch: int, cpu: float) -> list[float]:
        """Seconds of each operator of the graph, in its order."""
        seconds = self._seconds(ThreadsAndGpu(max(1, round(cpu))), batch)
        places = map(self._groups.place, range(len(self.graph.operators)))
        return [float(seconds[number][at]) for number, at in places]

    def untold(self) -> list[str]:
        """Kinds of operators that nothing tells the time of."""
        return self._lacking(self._groups.untold)

    def sources(self, batch: int, cpu: float) -> list[Source]:
        """Where the times of the operators are from, the longest first."""
        unit = ThreadsAndGpu(max(1, round(cpu)))
        found = []
        doublings = self._corrections.doublings(unit, batch)
        times = zip(self._seconds(unit, batch), doublings, self._groups.all, strict=True)
        for seconds, apart, group in times:
            for at, operator in enumerate(group.operators):
                spent_s = float(seconds[at] * group.counts[at])
                source = "measured" if math.isfinite(apart[at]) else "predicted"
                case = operator.at(batch)
                found.append(Source(case.kind, case.shapes, int(group.counts[at]), spent_s, source))
        return sorted(found, key=lambda each: -each.seconds)

    def unmeasured(self, settings: Sequence[Setting]) -> list[tuple[int, list[Setting]]]:
        """Positions of operators, one of equal ones, and where they can still be measured here.

        Those that are predicted to take longest come first.
        """
        found: dict[tuple[int, int], tuple[float, int, list[Setting]]] = {}
        seconds = {s: self._seconds(ThreadsAndGpu(*s[1:]), s.batch) for s in settings}
        for position, operator in enumerate(self.graph.operators):
            place = self._groups.place(position)
            if place in found:
                continue
            missing = [
                s
                for s in settings
                for unit in [ThreadsAndGpu(*s[1:])]
                if any(self._is_open((way.at(s.batch), unit)) for way in operator.ways)
            ]
            spent_s = sum(float(seconds[s][place[0]][place[1]]) for s in missing)
            found[place] = (spent_s, position, missing)
        ordered = sorted(found.values(), key=lambda each: -each[0])
        return [(position, missing) for _, position, missing in ordered if missing]

    def _is_open(self, place: tuple[Case, ThreadsAndGpu]) -> bool:
        return place not in self.known and place not in self.refused

    def _lacking(self, how: Callable[[Fit, ThreadsAndGpu], list[bool]]) -> list[str]:
        """Kinds of groups for which it is so on every unit, and which were not measured there."""
        found: set[int] = set(range(len(self._groups.all)))
        for unit in self.fit.units:
            groups = zip(how(self.fit, unit), self._corrections.told(unit), strict=True)
            found &= {at for at, (lacks, told) in enumerate(groups) if lacks and not told.all()}
        return list(dict.fromkeys(self._groups.all[at].kind for at in sorted(found)))

    def _admits(self, batch: int) -> bool:
        most = _BEYOND * max(self.fit.batches, default=0)
        return self.graph.admits(batch) and batch <= most

    def _uncalibrated(self, unit: ThreadsAndGpu, batch: int) -> float | None:
        told = self._corrections.told(unit)
        untold = self._groups.untold(self.fit, unit)
        if any(lacks and not known.all() for lacks, known in zip(untold, told, strict=True)):
            return None
        seconds = self._seconds(unit, batch)
        count = len(self.graph.operators)
        if self.parallel:
            return self.fit.run_s(unit, self._groups.longest_path_s(seconds), count)
        pairs = zip(seconds, self._groups.all, strict=True)
        kernels_s = sum(float(each @ group.counts) for each, group in pairs)
        return self.fit.run_s(unit, kernels_s, count)

    def _timed(self, unit: ThreadsAndGpu, batch: int) -> list[Array]:
        """Of the operators of each group."""
        seconds = self._groups.seconds(self.fit, unit, batch)
        return self._corrections.apply(seconds, unit, batch)

    def _bounds(self, unit: ThreadsAndGpu, batch: int, plain_s: float) -> Bounds:
        """Where log(measured / predicted) lies if no run of the model was measured."""
        law = self._law_bounds(unit, plain_s)
        guessed = self._groups.guessed(self.fit, unit)
        seconds, doublings = self._seconds(unit, batch), self._corrections.doublings(unit, batch)
        parts = []
        spent_s = 0.0
        for each, apart, group, is_guess, factors in zip(
            seconds, doublings, self._groups.all, guessed, self._scaled_by(unit, batch), strict=True
        ):
            more = GUESSED * is_guess + scaling(factors)
            known = np.isfinite(apart)
            low, high = from_far(measured(unit.threads), apart)
            weights = each * group.counts
            low, high = np.where(known, low, law[0] - more), np.where(known, high, law[1] + more)
            parts.append(Part(weights, low, high))
            spent_s += float(weights.sum())
        least, most = measured(unit.threads) if unit.threads in self.overheads else law
        besides = np.array([max(0.0, plain_s - spent_s)])
        return combined([*parts, Part(besides, np.array([least]), np.array([most]))])

    def _scaled_by(self, unit: ThreadsAndGpu, batch: int) -> list[Array]:
        """How much longer operators take on this machine than where their laws are from."""
        learnt = self.learnt if unit.threads in self.calibrated else None
        if learnt is None:
            return [np.ones(len(group.operators)) for group in self._groups.all]
        here, there = (self._groups.seconds(fit, unit, batch) for fit in (self.fit, learnt))
        return [one / np.maximum(two, _LEAST_S) for one, two in zip(here, there, strict=True)]

    def _law_bounds(self, unit: ThreadsAndGpu, plain_s: float) -> Bounds:
        """The bounds for operators that follow from laws."""
        low, high = self.fit.errors_of(unit, plain_s).plain
        if self.elsewhere is None:
            return low, high
        if unit.threads in self.calibrated:
            more = CALIBRATED
        else:
            more = LEVELLED if any(known == unit for _, known in self.known) else FOREIGN
        return low - more, high + more

    @cached_property
    def _errors(self) -> dict[ThreadsAndGpu, list[_RunError]]:
        """How far the model's own measured runs are from their predictions."""
        found: dict[ThreadsAndGpu, list[_RunError]] = {}
        for setting, measured_s in sorted(self.runs.items()):
            unit = ThreadsAndGpu(setting.threads, setting.gpu)
            plain_s = self._plain_s(unit, setting.batch) if unit in self.fit.per_run_s else None
            if plain_s:
                error = max(
                    -_MOST_CORRECTION, min(_MOST_CORRECTION, math.log(measured_s / plain_s))
                )
                excess = self._excess(unit, setting.batch, plain_s, error)
                found.setdefault(unit, []).append(_RunError(setting.batch, error, excess))
        return found

    def _excess(self, unit: ThreadsAndGpu, batch: int, plain_s: float, error: float) -> float:
        """What of a run's error is not the model's: beyond what its interval leaves open."""
        low, high = self._bounds(unit, batch, plain_s)
        return error - min(max(error, low), high)

    def _told(self, unit: ThreadsAndGpu, batch: int, plain_s: float) -> tuple[float, Bounds]:
        """What the model's own runs add to a prediction's logarithm, and what they leave open.

        Runs on the same threads tell it, between batches, else all of them.
        """
        errors = self.fit.errors_of(unit, plain_s)
        same = unit in self._errors
        runs = [self._errors[unit]] if same else list(self._errors.values())
        plain = self._bounds(unit, batch, plain_s)
        if not runs:
            return 0.0, plain
        error, excess = np.mean([_between(points, batch) for points in runs], axis=0).tolist()
        apart = min(abs(math.log2(batch / run.batch)) for points in runs for run in points)
        share, bounds = errors.carried(apart, same=same)
        own = max(plain[0], bounds[0]), min(plain[1], bounds[1])
        return excess + share * (error - excess), own if own[0] < own[1] else bounds

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
