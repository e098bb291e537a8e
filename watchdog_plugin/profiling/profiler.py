"""Profiles a model: runs it at all settings within a time limit, and summarizes the times.

Every round visits every setting, in a new order, so that a slow period of the machine affects all
of them equally. A visit times some runs as a whole, and some by operators. Runs during which other
programs or other virtual machines used the cores count only if there are too few others.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from statistics import median_grouped
from typing import TYPE_CHECKING, Self

import numpy as np
import onnxruntime as ort

from carpool.predictor.profile import OperatorRow, Origin, RunRow, Setting
from carpool.processor import processor
from watchdog_plugin.profiling.disturbance import (
    CALM,
    LEAST_RUNS,
    Disturbance,
    least_disturbed,
    pinned,
)
from watchdog_plugin.profiling.memory import PeakMemory
from watchdog_plugin.profiling.operator_matching import matched
from watchdog_plugin.profiling.other_programs import OtherPrograms
from watchdog_plugin.profiling.profiled_session import ProfiledSession, feeds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from onnx import ModelProto

    from carpool.onnx_graph.operator_graph import Case, Graph
    from watchdog_plugin.profiling.profiled_session import OperatorTimes
    from watchdog_plugin.protocols.tensors import Array

__all__ = ["Grid", "Measured", "measure", "origin", "profile", "rows"]

_VISIT_S = 0.03  # duration of a visit's timed runs, of which there is at least one
_MOST_RUNS = 30  # most runs of one visit
_LEAST_ROUNDS = 3
_MOST_ROUNDS = 100
_PATIENCE_S = 0.5  # longest wait for other programs before a visit, if there is time
_PATIENCE_SHARE = 0.25  # share of a round for these waits; a round has a third of the time
_WARM_UPS, _LONG_S = 3, 0.5  # warm-up runs of each setting; one is enough if it takes this long
_ENOUGH_RUNS = 9  # undisturbed ones of a setting
_RUNS_OF_OPERATORS = 10  # most runs of a visit that are timed by operators
_CLOCK_S = 1e-6  # operators are reported in whole microseconds; many together are more exact


@dataclass(frozen=True, slots=True)
class Grid:
    """The settings to measure.

    Attributes:
        batches: Batch sizes.
        threads: Numbers of threads.
        budget_s: Time limit in seconds, including loading; each setting is visited in any case.
        rounds: Maximum number of rounds.
    """

    batches: Sequence[int]
    threads: Sequence[int]
    budget_s: float = 60.0
    rounds: int = _MOST_ROUNDS


@dataclass(slots=True)
class Measured:
    """Measurements at one setting; each run with its disturbance.

    Attributes:
        setting: Batch size, threads, GPU.
        inputs: Inputs of the runs.
        whole_s: Runs timed as a whole.
        operators: Runs timed by operators.
        disturbances: Those of the runs timed by operators.
    """

    setting: Setting
    inputs: dict[str, Array]
    whole_s: list[tuple[float, float]] = field(default_factory=list)
    operators: list[tuple[float, OperatorTimes]] = field(default_factory=list)
    disturbances: list[float] = field(default_factory=list)

    def settled(self) -> bool:
        """Return whether enough runs were undisturbed."""
        whole = sum(disturbance <= CALM for disturbance, _ in self.whole_s)
        parts = sum(disturbance <= CALM for disturbance in self.disturbances)
        return whole >= _ENOUGH_RUNS and (parts >= LEAST_RUNS or not self.disturbances)


class _Pair:
    """The sessions for one number of threads: one timed as a whole, one by operators.

    As a context manager, it removes its files even if an error occurs.
    """

    def __init__(self, model: bytes, folder: Path, threads: int, *, operators: bool) -> None:
        self._whole = ProfiledSession(model, folder, threads, operators=False)
        self._parts = ProfiledSession(model, folder, threads, operators=True) if operators else None
        self._other_programs, self._disturbance = OtherPrograms(), Disturbance()
        self._cores = self._disturbance.calmest(threads)
        self._order: list[Measured | None] = []

    def warm_up(self, measured: Measured, *, briefly: bool) -> None:
        """Run the sessions, as they allocate memory in the first runs of each size."""
        for _ in range(1 if briefly else _WARM_UPS):
            first_s = self._whole.run_s(measured.inputs)
            self._run_parts(measured, 1, kept=False)
            if first_s > _LONG_S:
                break

    def visit(self, measured: Measured, patience_s: float) -> None:
        """Time one setting, once other programs leave the machine idle or the patience is over."""
        self._other_programs.await_calm(patience_s)
        self._cores = self._disturbance.calmest(measured.setting.threads)
        with pinned(self._cores):
            self._visit(measured)

    def _visit(self, measured: Measured) -> None:
        first_s = self._run_whole(measured, 1)
        runs = int(min(_MOST_RUNS, max(1, _VISIT_S / first_s)))
        if first_s < _LONG_S:  # it has warmed the caches that the others have used
            measured.whole_s.pop()
            self._run_whole(measured, runs)
        if first_s < _VISIT_S:
            self._run_parts(measured, 1, kept=False)
        self._run_parts(measured, min(runs, _RUNS_OF_OPERATORS), kept=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._parts:
            self._parts.close()

    def hand_over_times(self) -> None:
        """Assign the times of operators to the settings they belong to."""
        times = self._parts.operator_times() if self._parts else []
        taken: defaultdict[int, int] = defaultdict(int)
        for measured, operator_times in zip(self._order, times, strict=False):
            if measured is not None:
                disturbance = measured.disturbances[taken[id(measured)]]
                taken[id(measured)] += 1
                measured.operators.append((disturbance, operator_times))

    def _run_whole(self, measured: Measured, runs: int) -> float:
        """Time some runs as a whole, and return the seconds of the last one."""
        for disturbance, times in self._blocks(self._whole, measured, runs):
            measured.whole_s += [(disturbance, time_s) for time_s in times]
        return times[-1]

    def _run_parts(self, measured: Measured, runs: int, *, kept: bool) -> None:
        if self._parts is None:
            return
        for disturbance, times in self._blocks(self._parts, measured, runs):
            if kept:
                measured.disturbances += [disturbance] * len(times)
            self._order += [measured if kept else None] * len(times)

    def _blocks(
        self, session: ProfiledSession, measured: Measured, runs: int
    ) -> Iterator[tuple[float, list[float]]]:
        """Yield blocks of runs with their disturbance."""
        while runs:
            run = partial(session.run_s, measured.inputs)
            disturbance, times = self._disturbance.block(run, runs, self._cores)
            runs -= len(times)
            yield disturbance, times


def profile(
    model: ModelProto,
    folder: Path,
    graph: Graph | None,
    grid: Grid,
    say: Callable[[str], None],
) -> tuple[tuple[RunRow, ...], tuple[OperatorRow, ...], float, float]:
    """Return a model's run rows, operator rows, load time in seconds and memory in megabytes.

    Args:
        model: The model, as returned by `read_onnx`.
        folder: The folder of external weight files.
        graph: The model's operators; None to measure only whole runs.
        grid: The settings to measure.
        say: Called with progress messages.

    Raises:
        LoadError: The model cannot be loaded or run.
    """
    seen, load_s, memory_mb = measure(model, folder, grid, say, operators=graph is not None)
    return *rows(seen, graph), load_s, memory_mb


def measure(
    model: ModelProto,
    folder: Path,
    grid: Grid,
    say: Callable[[str], None],
    *,
    operators: bool,
) -> tuple[list[Measured], float, float]:
    """Return the runs for `profile`, the load time in seconds and the memory in megabytes."""
    settings = [
        Measured(Setting(batch, threads), feeds(model, batch))
        for threads in grid.threads
        for batch in grid.batches
    ]
    began_s = time.monotonic()
    data = model.SerializeToString()
    load_s, memory_mb = _first(data, folder, settings)
    with ExitStack() as opened:
        pairs = {
            threads: opened.enter_context(_Pair(data, folder, threads, operators=operators))
            for threads in grid.threads
        }
        _rounds(settings, pairs, grid, began_s, say)
        for pair in pairs.values():
            pair.hand_over_times()
    return settings, load_s, memory_mb


def rows(
    seen: Sequence[Measured], graph: Graph | None
) -> tuple[tuple[RunRow, ...], tuple[OperatorRow, ...]]:
    """Return the database rows of measured runs."""
    runs = tuple(_run_row(measured) for measured in seen)
    return runs, tuple(row for m in seen for row in _operator_rows(graph, m)) if graph else ()


def origin() -> Origin:
    """Return this machine's processor and runtime."""
    return Origin(processor(), f"onnxruntime {ort.__version__}")


def _first(model: bytes, folder: Path, settings: Sequence[Measured]) -> tuple[float, float]:
    """Return the seconds to load the model, and the megabytes that it and its largest batch use."""
    peak = PeakMemory()
    largest = max(settings, key=lambda measured: measured.setting.batch)
    session = ProfiledSession(model, folder, largest.setting.threads, operators=False)
    for _ in range(2):
        session.run_s(largest.inputs)
    return session.load_s, peak.mb()


def _rounds(
    settings: Sequence[Measured],
    pairs: dict[int, _Pair],
    grid: Grid,
    began_s: float,
    say: Callable[[str], None],
) -> None:
    """Visit every setting round by round; after the time limit, only those not yet visited."""
    end_s = began_s + grid.budget_s
    order = list(settings)
    patience_s = min(_PATIENCE_S, _PATIENCE_SHARE * grid.budget_s / _LEAST_ROUNDS / len(order))
    shuffled = random.Random(1)  # noqa: S311  an order, no secret
    for done, measured in enumerate(order):
        share = done / len(order) * _PATIENCE_SHARE
        briefly = time.monotonic() > began_s + share * grid.budget_s
        pairs[measured.setting.threads].warm_up(measured, briefly=briefly)
    for done in range(1, grid.rounds + 1):
        shuffled.shuffle(order)
        for measured in order:
            late = measured.whole_s and time.monotonic() >= end_s
            if not late and (done <= _LEAST_ROUNDS or not measured.settled()):
                pairs[measured.setting.threads].visit(measured, patience_s)
        spent_s = time.monotonic() - began_s
        settled = sum(measured.settled() for measured in order)
        say(f"round {done}, {spent_s:.0f} s: {settled} of {len(order)} settings settled")
        if spent_s >= grid.budget_s or (done >= _LEAST_ROUNDS and settled == len(order)):
            return


def _run_row(measured: Measured) -> RunRow:
    times = least_disturbed(measured.whole_s)
    low, mid, high, p90, p95, p99 = np.quantile(times, [0.25, 0.5, 0.75, 0.9, 0.95, 0.99]).tolist()
    return RunRow(measured.setting, mid, p90, p95, p99, high - low, len(times))


def _operator_rows(graph: Graph, measured: Measured) -> Iterable[OperatorRow]:
    """Yield the operator rows of one setting, with identical operators combined."""
    cases = [operator.at(measured.setting.batch) for operator in graph.operators]
    runs = [matched(graph, cases, run) for run in least_disturbed(measured.operators)]
    columns = list(zip(*(run for run in runs if run), strict=True))
    together: defaultdict[Case, list[tuple[float, float]]] = defaultdict(list)
    for case, times in zip(cases, columns, strict=bool(columns)):
        low, high = np.quantile(times, [0.25, 0.75]).tolist()
        together[case].append((median_grouped(times, interval=_CLOCK_S), high - low))
    for case, times_s in together.items():
        mean_s, spread_s = (sum(column) / len(times_s) for column in zip(*times_s, strict=True))
        yield OperatorRow(case, measured.setting, len(times_s), mean_s, spread_s)
