"""The operators latency model: a sum over a graph's operators, corrected by measurements.

ONNX Runtime's sequential executor runs one operator after the other, each on all threads, so a run
takes the sum of its operators plus a small overhead for each. With the parallel executor, branches
overlap, and no run is faster than the longest path. Operators that were measured, in other models
or alone, use those times; all others follow the law of their class. One measured run of the model
removes most of the remaining error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache, partial
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from carpool.latency.model import Configuration, Resources
from carpool.predictor.corrections import Corrections
from carpool.predictor.fit import ThreadsAndGpu
from carpool.predictor.operator_groups import Groups
from carpool.predictor.prediction_intervals import (
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

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from carpool.onnx_graph.operator_graph import Case, Graph
    from carpool.predictor.fit import Bounds, Fit
    from carpool.predictor.profile import Setting

    Array = NDArray[np.float64]

__all__ = ["Interval", "OperatorLatencyModel", "Source"]

_NORMAL = NormalDist()
_BEYOND = 2  # limit of batches, as a multiple of the largest measured one
_MOST_CORRECTION = math.log(4)
_MOST_SLOWDOWN = 1.5  # of a run by further threads
_LEAST_S = 1e-9


class Interval(NamedTuple):
    """90 % interval of the median of runs, in seconds."""

    low_s: float
    high_s: float


class Source(NamedTuple):
    """Source of the time of equal operators of a graph.

    Attributes:
        op_type: Type of the operators.
        shapes: Shapes of their inputs and outputs.
        number: Number of equal operators.
        seconds: Time of all of them together.
        source: ``measured`` if measured on the target machine, else ``predicted``.
    """

    op_type: str
    shapes: str
    number: int
    seconds: float
    source: str


class _RunError(NamedTuple):
    """The log(measured / predicted) of a run of the model, and its excess beyond the interval."""

    batch: int
    error: float
    excess: float


@dataclass(frozen=True)
class OperatorLatencyModel:
    """Predicts how long a batch of one model takes, by adding up its operators.

    Attributes:
        graph: The operators of the model.
        fit: The fit that predicts operators.
        known: Seconds of operators that were measured on the target machine, by case and unit.
        elsewhere: The same on another machine, which the fit is from; None if the fit is from
            this one.
        overheads: Numbers of threads for which the overhead of runs was measured here.
        runs: Seconds of measured runs of the model itself.
        load_s: Seconds to load an instance.
        memory_mb: Memory of an instance.
        parallel: Whether branches run in parallel.
        refused: Operators that the runtime refuses to run alone on the target machine.
        least: The model with the quicker branch of each If; this one has the slower one.
        groups: Operator groups of the graph, if already known.
        learnt: The fit before it was scaled to the target machine; None if it was not scaled.
        calibrated: Numbers of threads for which the fit was scaled.
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
        """Prepare what all predictions share."""
        known = self.groups if self.groups and self.groups.graph is self.graph else None
        groups = known or Groups(self.graph)
        learnt = self.learnt or self.fit
        corrections = Corrections(groups, self.fit, self.elsewhere, self.known, learnt)
        cached, seconds, by_own_runs = (
            lru_cache(maxsize=size)(of)
            for size, of in ((1024, self._uncorrected), (64, self._timed), (64, self._settled))
        )
        object.__setattr__(self, "_groups", groups)
        object.__setattr__(self, "_corrections", corrections)
        object.__setattr__(self, "_plain_s", cached)
        object.__setattr__(self, "_seconds", seconds)
        object.__setattr__(self, "_by_own_runs", by_own_runs)

    _groups: Groups = field(init=False, repr=False, compare=False)
    _corrections: Corrections = field(init=False, repr=False, compare=False)
    _plain_s: Callable[[ThreadsAndGpu, int], float | None] = field(
        init=False, repr=False, compare=False
    )
    _seconds: Callable[[ThreadsAndGpu, int], list[Array]] = field(
        init=False, repr=False, compare=False
    )
    _by_own_runs: Callable[[ThreadsAndGpu, int, float], tuple[float, Bounds]] = field(
        init=False, repr=False, compare=False
    )

    def __reduce__(self) -> tuple[Callable[[], OperatorLatencyModel], tuple[()]]:
        """Pickle its arguments, as its caches cannot be pickled."""
        given = {part.name: getattr(self, part.name) for part in fields(self) if part.init}
        return partial(OperatorLatencyModel, **given), ()

    def predict(self, batch: int, cpu: float, gpu: float, quantile: float = 0.5) -> float | None:
        """Implement `LatencyModel.predict`; fewer cores than threads slow a run by that ratio."""
        unit = ThreadsAndGpu(max(1, round(cpu)), gpu) if cpu > 0 else ThreadsAndGpu(0)
        if unit not in self.fit.per_run_s or not self._admits(batch):
            return None
        plain_s = self._plain_s(unit, batch)
        if plain_s is None:
            return None
        stretched = max(1.0, unit.threads / cpu)
        correction, _ = self._by_own_runs(unit, batch, plain_s)
        return plain_s * math.exp(correction) * stretched * self._tail(quantile)

    def interval(self, batch: int, cpu: float, gpu: float) -> Interval | None:
        """Return the interval of the median, based on the errors for models left out of the fit."""
        middle_s = self.predict(batch, cpu, gpu)
        if middle_s is None:
            return None
        unit = ThreadsAndGpu(max(1, round(cpu)), gpu)
        _, (low, high) = self._by_own_runs(unit, batch, self._plain_s(unit, batch) or middle_s)
        least = self.least.interval(batch, cpu, gpu) if self.least else None
        low_s = middle_s * math.exp(low)
        return Interval(min(low_s, least.low_s) if least else low_s, middle_s * math.exp(high))

    def resources(self, batch: int, cpu: float, gpu: float) -> Resources:
        """Implement `LatencyModel.resources`."""
        del batch
        return Resources(cpu, gpu, self.memory_mb)

    def configurations(self, max_batch: int) -> Iterator[Configuration]:
        """Yield every batch size on every number of whole cores that was measured."""
        for unit in self.fit.units:
            for batch in range(1, max_batch + 1):
                if self.predict(batch, unit.threads, unit.gpu) is not None:
                    yield Configuration(batch, float(unit.threads), unit.gpu)

    def guessed(self) -> list[str]:
        """Return types of operators that were never measured but follow the law of their family."""
        return self._lacking(self._groups.guessed)

    def operator_seconds(self, batch: int, cpu: float) -> list[float]:
        """Return the seconds of each operator of the graph, in its order."""
        seconds = self._seconds(ThreadsAndGpu(max(1, round(cpu))), batch)
        places = map(self._groups.place, range(len(self.graph.operators)))
        return [float(seconds[number][at]) for number, at in places]

    def unknown_operators(self) -> list[str]:
        """Return types of operators without any law or measurement."""
        return self._lacking(self._groups.lacks_law)

    def sources(self, batch: int, cpu: float) -> list[Source]:
        """Return the sources of the operators' times, the longest first."""
        unit = ThreadsAndGpu(max(1, round(cpu)))
        sources = []
        doublings = self._corrections.doublings(unit, batch)
        times = zip(self._seconds(unit, batch), doublings, self._groups.all, strict=True)
        for seconds, apart, group in times:
            for at, operator in enumerate(group.operators):
                spent_s = float(seconds[at] * group.counts[at])
                source = "measured" if math.isfinite(apart[at]) else "predicted"
                case = operator.at(batch)
                sources.append(
                    Source(case.op_type, case.shapes, int(group.counts[at]), spent_s, source)
                )
        return sorted(sources, key=lambda each: -each.seconds)

    def unmeasured(self, settings: Sequence[Setting]) -> list[tuple[int, list[Setting]]]:
        """Return operators that can still be measured here, by position, and at which settings.

        Equal operators appear once. Those predicted to take longest come first.
        """
        spent: dict[tuple[int, int], tuple[float, int, list[Setting]]] = {}
        units = {s: ThreadsAndGpu(*s[1:]) for s in settings}
        seconds = {s: self._seconds(unit, s.batch) for s, unit in units.items()}
        for position, operator in enumerate(self.graph.operators):
            place = self._groups.place(position)
            if place in spent:
                continue
            missing = [
                s
                for s, unit in units.items()
                if any(self._is_open((branch.at(s.batch), unit)) for branch in operator.branches)
            ]
            spent_s = sum(float(seconds[s][place[0]][place[1]]) for s in missing)
            spent[place] = (spent_s, position, missing)
        ordered = sorted(spent.values(), key=lambda each: -each[0])
        return [(position, missing) for _, position, missing in ordered if missing]

    def _is_open(self, place: tuple[Case, ThreadsAndGpu]) -> bool:
        return place not in self.known and place not in self.refused

    def _lacking(self, how: Callable[[Fit, ThreadsAndGpu], list[bool]]) -> list[str]:
        """Return the classes for which ``how`` is true on every unit, unless measured there."""
        lacking: set[int] = set(range(len(self._groups.all)))
        for unit in self.fit.units:
            groups = zip(how(self.fit, unit), self._corrections.measured(unit), strict=True)
            lacking &= {at for at, (lacks, known) in enumerate(groups) if lacks and not known.all()}
        return list(dict.fromkeys(self._groups.all[at].operator_class for at in sorted(lacking)))

    def _admits(self, batch: int) -> bool:
        most = _BEYOND * max(self.fit.batches, default=0)
        return self.graph.admits(batch) and batch <= most

    def _uncorrected(self, unit: ThreadsAndGpu, batch: int) -> float | None:
        """Return the seconds of a run, without the correction by the model's own runs."""
        lacking = self._groups.lacks_law(self.fit, unit)
        measured = self._corrections.measured(unit)
        if any(lacks and not known.all() for lacks, known in zip(lacking, measured, strict=True)):
            return None
        seconds = self._seconds(unit, batch)
        count = len(self.graph.operators)
        if self.parallel:
            return self.fit.run_s(unit, self._groups.longest_path_s(seconds), count)
        pairs = zip(seconds, self._groups.all, strict=True)
        kernels_s = sum(float(each @ group.counts) for each, group in pairs)
        run_s = self.fit.run_s(unit, kernels_s, count)
        is_measured = all(known.all() for known in measured)
        return self._shared(unit, batch, run_s) if is_measured else run_s

    def _shared(self, unit: ThreadsAndGpu, batch: int, run_s: float) -> float:
        """Return the seconds of a run of measured operators, limited by those on one thread.

        Several threads share the work, so a run takes at least their share of its time on one
        thread. It can take longer than on one, as threads wait for each other after every step of a
        recurrent layer. A sum beyond that is an error of measurement: operators of microseconds
        take less than the time of several threads varies by.
        """
        alone = ThreadsAndGpu(1, unit.gpu)
        if unit.threads <= 1 or not all(known.all() for known in self._corrections.measured(alone)):
            return run_s
        alone_s = self._plain_s(alone, batch)
        if alone_s is None:
            return run_s
        return min(max(run_s, alone_s / unit.threads), _MOST_SLOWDOWN * alone_s)

    def _timed(self, unit: ThreadsAndGpu, batch: int) -> list[Array]:
        """Return the seconds of the operators of each group, measured or predicted."""
        seconds = self._groups.seconds(self.fit, unit, batch)
        return self._corrections.apply(seconds, unit, batch)

    def _bounds(self, unit: ThreadsAndGpu, batch: int, plain_s: float) -> Bounds:
        """Return the bounds of log(measured / predicted) without measured runs of the model."""
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
        """Return how much slower operators are on this machine than on that of their laws."""
        learnt = self.learnt if unit.threads in self.calibrated else None
        if learnt is None:
            return [np.ones(len(group.operators)) for group in self._groups.all]
        here, there = (self._groups.seconds(fit, unit, batch) for fit in (self.fit, learnt))
        return [one / np.maximum(two, _LEAST_S) for one, two in zip(here, there, strict=True)]

    def _law_bounds(self, unit: ThreadsAndGpu, plain_s: float) -> Bounds:
        """Return the bounds for operators that are predicted by laws."""
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
        """Errors of the predictions of the model's own measured runs, by unit."""
        errors: dict[ThreadsAndGpu, list[_RunError]] = {}
        for setting, measured_s in sorted(self.runs.items()):
            unit = ThreadsAndGpu(setting.threads, setting.gpu)
            plain_s = self._plain_s(unit, setting.batch) if unit in self.fit.per_run_s else None
            if plain_s:
                error = max(
                    -_MOST_CORRECTION, min(_MOST_CORRECTION, math.log(measured_s / plain_s))
                )
                excess = self._excess(unit, setting.batch, plain_s, error)
                errors.setdefault(unit, []).append(_RunError(setting.batch, error, excess))
        return errors

    def _excess(self, unit: ThreadsAndGpu, batch: int, plain_s: float, error: float) -> float:
        """Return the part of a run's error beyond its interval, which is not the model's."""
        low, high = self._bounds(unit, batch, plain_s)
        return error - min(max(error, low), high)

    def _settled(self, unit: ThreadsAndGpu, batch: int, plain_s: float) -> tuple[float, Bounds]:
        """Return the model's correction by its own runs, as a logarithm, and the remaining bounds.

        Runs on the same threads are used, interpolated between batch sizes, or else all runs.
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
        """Return the ratio of this quantile to the median; at least 1, as planners rely on it."""
        if quantile <= 0.5 or not self.fit.tails:  # noqa: PLR2004  the median
            return 1.0
        known = [(0.0, 0.0)]
        known += [(_NORMAL.inv_cdf(q), math.log(r)) for q, r in sorted(self.fit.tails.items())]
        scores, logs = zip(*known, strict=True)
        score = _NORMAL.inv_cdf(quantile)
        beyond = max(1.0, score / scores[-1])
        return math.exp(float(np.interp(score, scores, logs)) * beyond)


def _between(points: Sequence[_RunError], batch: int) -> tuple[float, float]:
    """Return error and excess at a batch size, interpolated between measured ones."""
    batches, *columns = np.array(points, float).T
    at = math.log(batch), np.log(batches)
    error, excess = (float(np.interp(*at, column)) for column in columns)
    return error, excess
