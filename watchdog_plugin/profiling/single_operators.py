"""Measures operators alone: each without the rest of its model.

The model itself is never run, only each of its distinct operators, with its own weights. Between
two uses of these weights, as much memory is moved through the caches as a run of the model moves,
so that they are found where they would be in such a run; inputs and outputs are touched last, as
preceding operators would do.

An operator runs after its predecessor in the model, and the time of that one by itself is
subtracted. The runtime's profiler is not used, as it takes microseconds for each operator.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from statistics import median, median_low
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
import onnxruntime as ort

from carpool.onnx_graph.single_node import shape_values
from carpool.predictor.composition import MOST_MB, Footprint
from carpool.predictor.features import sized
from carpool.predictor.profile import Alone, RefusedOperator
from watchdog_plugin.function import LoadError
from watchdog_plugin.profiling.disturbance import LEAST_RUNS, Disturbance, pinned
from watchdog_plugin.profiling.operator_pair import OperatorPair, Step, predecessor
from watchdog_plugin.profiling.run_overhead import quicker_half_s, trivial_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from onnx import ModelProto

    from carpool.onnx_graph.operator_graph import Case, Operator
    from carpool.onnx_graph.optimised import Optimised
    from carpool.predictor.profile import Setting
    from watchdog_plugin.protocols.tensors import Array

__all__ = ["Wanted", "measure_alone"]

_VISITS, _MOST_VISITS = 3, 8  # undisturbed ones of each setting; all, on average
_SETTLING_S, _LEAST_SETTLING, _MOST_SETTLING = 0.02, 2, 12  # of one setting: time, and runs
_RESOLUTION_S = 1e-9  # of the clock
_VISIT_S, _MOST_RUNS = 0.03, 75  # of one setting: time to aim at, and runs
_TOLD = 10  # operators between two messages


class Wanted(NamedTuple):
    """An operator to be measured.

    Attributes:
        position: Its index in the graph.
        settings: The settings to measure it at.
    """

    position: int
    settings: Sequence[Setting]


def measure_alone(
    best: Optimised,
    wanted: Sequence[Wanted],
    profiled_s: Mapping[int, float],
    budget_s: float,
    say: Callable[[str], None],
) -> Iterator[Alone | RefusedOperator]:
    """Yield times of operators, in the order of ``wanted``, until the time limit.

    Progress is reported after every ten operators. An operator that the runtime does not run alone
    is yielded as refused. Other programs and other virtual machines prolong runs for seconds. So
    operators are measured several times if the budget allows it, those first that were disturbed
    most often, and yielded again if that changes their time.

    Args:
        best: The optimised model.
        wanted: The operators.
        profiled_s: By number of threads, the seconds that the runtime's profiler adds to each
            operator. Predictions subtract them again, so both must be of the same measurement.
        budget_s: Time limit in seconds.
        say: Called with progress messages.
    """
    end_s, here = time.monotonic() + budget_s, _Here(best, wanted, profiled_s)
    yielded_s: dict[tuple[Case, Setting], float] = {}
    some, again = list(wanted), False
    while some:
        for row in _once(best, some, here, end_s, _silently if again else say):
            key = row.case, row.setting
            if isinstance(row, Alone):
                if row.seconds != yielded_s.get(key):
                    yielded_s[key] = row.seconds
                    yield row
            elif not again:
                yield row
        again = True
        some = [] if time.monotonic() > end_s else here.least_measured(wanted)
        if len(some) > _TOLD:
            say(f"all operators measured, now {len(some)} of them again")


def _once(
    best: Optimised,
    wanted: Sequence[Wanted],
    here: _Here,
    end_s: float,
    say: Callable[[str], None],
) -> Iterator[Alone | RefusedOperator]:
    for done, each in enumerate(wanted):
        if done and not done % _TOLD:
            say(f"{done} of {len(wanted)} operators measured")
        if time.monotonic() > end_s:
            say(f"the time budget is spent: {len(wanted) - done} operators remain")
            return
        for operator in best.graph.operators[each.position].branches:
            yield from _Operator(best, each, operator, here).measured(end_s)


def _silently(message: str) -> None:
    """Say nothing, as all operators have been measured once."""


def _shape_values(best: Optimised, batch: int) -> dict[str, Array]:
    return shape_values(best.model, best.graph.operators, batch, _run_once)


def _run_once(model: ModelProto) -> dict[str, Array]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    data = model.SerializeToString()
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(None, {}), strict=True))


class _Visit(NamedTuple):
    """Runs of an operator at one setting, in close succession.

    Attributes:
        calm: Whether nothing disturbed them.
        with_s: Typical time with the operator.
        without_s: Typical time without it.
    """

    calm: bool
    with_s: float
    without_s: float


class _Visits:
    """All visits of one operator at one setting."""

    def __init__(self) -> None:
        self._visits: list[_Visit] = []
        self.calm = 0

    def add(self, visit: _Visit) -> float:
        """Add one, and return the seconds of the operator.

        They are the median of undisturbed visits, and if there are none, the fastest. With and
        without the operator, these are different visits: the median of the differences would rather
        be of visits in which only one of the two was disturbed.
        """
        self._visits.append(visit)
        self.calm += visit.calm
        counting = [each for each in self._visits if each.calm or not self.calm]
        typical = median_low if self.calm else min
        with_s, without_s = (typical(each[at] for each in counting) for at in (1, 2))
        return max(0.0, with_s - without_s)


class _Here:
    """State shared by the measurements of a model's operators.

    Attributes:
        values: By batch size, the values of tensors that follow from shapes.
        footprint: The memory that runs of the model move.
        view_s: By number of threads, the time of an operator that computes and moves nothing.
        profiled_s: By number of threads, what the runtime's profiler adds to each operator.
        visits: By case and setting, the visits so far; none of views and of refused operators.
        disturbance: Disturbance by others.
    """

    def __init__(
        self, best: Optimised, wanted: Sequence[Wanted], profiled_s: Mapping[int, float]
    ) -> None:
        settings = {setting for each in wanted for setting in each.settings}
        threads = {setting.threads for setting in settings}
        self.values = {batch: _shape_values(best, batch) for batch in {s.batch for s in settings}}
        self.footprint = Footprint(best.graph)
        self.view_s = {count: trivial_s(count) for count in threads}
        self.profiled_s = profiled_s
        self.visits: dict[tuple[Case, Setting], _Visits] = {}
        self.disturbance = Disturbance()
        self.blocks = np.zeros((2, (MOST_MB << 20) // 16))
        self._best, self._total = best, 0

    def visits_of(self, case: Case, setting: Setting) -> _Visits:
        """Return the visits at one setting, as there will be another one."""
        self._total += 1
        return self.visits.setdefault((case, setting), _Visits())

    def least_measured(self, wanted: Sequence[Wanted]) -> list[Wanted]:
        """Return the settings with the fewest undisturbed visits; none if there are enough."""
        calm = {
            (each.position, setting): min(self._calm(each.position, setting))
            for each in wanted
            for setting in each.settings
        }
        fewest = min(calm.values(), default=_VISITS)
        if fewest >= _VISITS or self._total >= _MOST_VISITS * len(calm):
            return []
        some = [
            each._replace(settings=[s for s in each.settings if calm[each.position, s] == fewest])
            for each in wanted
        ]
        return [each for each in some if each.settings]

    def _calm(self, position: int, setting: Setting) -> Iterator[int]:
        """Yield the numbers of undisturbed visits of an operator's branches."""
        for operator in self._best.graph.operators[position].branches:
            visits = self.visits.get((operator.at(setting.batch), setting))
            yield visits.calm if visits else _VISITS


class _Mover:
    """Moves memory through the caches between two runs, on every core that a run uses.

    In a run of a model, the preceding operator has used the same cores: each has its part of the
    operator's inputs in its cache, and none sleeps so deeply that it takes long to wake up.

    Args:
        blocks: Source and target of the memory moved.
        cores: The cores; the first is that of the calling thread.
    """

    def __init__(self, blocks: Array, cores: Sequence[int]) -> None:
        self._blocks, self._parts = blocks, len(cores)
        self._others = [
            ThreadPoolExecutor(1, initializer=os.sched_setaffinity, initargs=(0, [core]))
            for core in cores[1:]
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for other in self._others:
            other.shutdown()

    def move(self, size: int, arrays: Sequence[Array]) -> None:
        """Move ``size`` bytes through the caches, then touch arrays that an operator finds warm."""
        moves = [
            other.submit(self._move, part, size, arrays)
            for part, other in enumerate(self._others, 1)
        ]
        self._move(0, size, arrays)
        for move in moves:
            move.result()

    def _move(self, part: int, size: int, arrays: Sequence[Array]) -> None:
        target, source = (self._of(part, each[: size // 16]) for each in self._blocks)
        np.copyto(target, source)
        for array in arrays:
            own = self._of(part, array)
            np.bitwise_or(own, 0, out=own)

    def _of(self, part: int, array: Array) -> Array:
        """Return the bytes of ``array`` that one core moves."""
        flat = array.reshape(-1).view(np.uint8)
        first, end = (at * flat.size // self._parts for at in (part, part + 1))
        return flat[first:end]


class _Operator:
    """Measures one operator at all its settings."""

    def __init__(self, best: Optimised, wanted: Wanted, operator: Operator, here: _Here) -> None:
        self._step = Step(best.model.graph.node[wanted.position], operator)
        self._predecessor = predecessor(best, wanted.position)
        self._settings, self._here, self._model = wanted.settings, here, best.model

    def measured(self, end_s: float) -> Iterator[Alone | RefusedOperator]:
        """Yield its times; refusals from the first number of threads that the runtime refuses."""
        if sized(self._case(self._settings[0])).family == "view":  # alone, it would be a copy
            yield from (self._row(s, self._here.view_s[s.threads]) for s in self._settings)
            return
        for at, threads in enumerate(sorted({setting.threads for setting in self._settings})):
            if at and time.monotonic() > end_s:
                return
            some = [setting for setting in self._settings if setting.threads == threads]
            try:
                yield from self._rows(threads, some, end_s)
            except LoadError:
                rest = (setting for setting in self._settings if setting.threads >= threads)
                yield from (RefusedOperator(self._case(setting), setting) for setting in rest)
                return

    def _rows(self, threads: int, settings: Sequence[Setting], end_s: float) -> list[Alone]:
        """Return its times after its predecessor, or without one if the runtime refuses that."""
        if self._predecessor is not None:
            with suppress(LoadError):
                return self._after([self._predecessor], threads, settings, end_s)
        return self._after([], threads, settings, end_s)

    def _after(
        self, steps: Sequence[Step], threads: int, settings: Sequence[Setting], end_s: float
    ) -> list[Alone]:
        rows: list[Alone] = []
        cores = self._here.disturbance.calmest(threads)
        # The system often wakes a thread on the core of the thread that wakes it, and separates the
        # two only after milliseconds of work: negligible in a run of a model, but not here.
        with pinned(cores[:1]), _Mover(self._here.blocks, cores) as mover:
            pair = OperatorPair(self._model, [*steps, self._step], threads, cores)
            for setting in settings:
                if rows and time.monotonic() > end_s:
                    break
                visits = self._here.visits_of(self._case(setting), setting)
                seconds = visits.add(self._visit(pair, setting, mover, cores, end_s))
                rows.append(self._row(setting, seconds + self._here.profiled_s[threads]))
        return rows

    def _visit(
        self,
        pair: OperatorPair,
        setting: Setting,
        mover: _Mover,
        cores: Sequence[int],
        end_s: float,
    ) -> _Visit:
        """Run at one setting, with the operator and without it."""
        arrays = pair.bind(setting.batch, self._here.values[setting.batch])
        moved_mb = self._here.footprint.moved_mb(self._case(setting), setting.batch)
        half = (moved_mb << 20) // 2  # as the operator runs in every second run only
        before = partial(mover.move, half, arrays) if half else _nothing
        run = partial(pair.run_s, before)
        runs = int(min(_MOST_RUNS, max(LEAST_RUNS, _VISIT_S / _settle_s(run))))
        calm, times = self._here.disturbance.runs(run, runs, end_s, cores)
        typical = median if setting.threads == 1 else quicker_half_s
        with_s, without_s = (typical(each) for each in zip(*times, strict=True))
        return _Visit(calm, with_s, without_s)

    def _row(self, setting: Setting, seconds: float) -> Alone:
        case = self._case(setting)
        return Alone(case, setting, self._here.footprint.moved_mb(case, setting.batch), seconds)

    def _case(self, setting: Setting) -> Case:
        return self._step.operator.at(setting.batch)


def _nothing() -> None:
    """Move nothing before a run."""


def _settle_s(run: Callable[[], object]) -> float:
    """Run until the caches hold what they will hold; return the seconds of the last run.

    A last-level cache keeps weights only once they have been used several times: on an AMD EPYC of
    family 25, runs of a model with 10 MB of weights become faster until the twelfth.
    """
    began = time.monotonic()
    end_s, runs, last_s = began + _SETTLING_S, 0, 0.0
    while runs < _MOST_SETTLING and (runs < _LEAST_SETTLING or began < end_s):
        run()
        runs, before = runs + 1, began
        began = time.monotonic()
        last_s = began - before
    return max(last_s, _RESOLUTION_S)
