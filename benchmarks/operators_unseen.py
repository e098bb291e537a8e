"""Predict models from operators measured alone: ``python -m benchmarks operators --unseen``.

Each model's operators are measured alone, within a minute, and the model is predicted from them;
then it is run, and the two are compared. The composition of operators and the width of intervals
were chosen with the first list of models; the second played no part in it, and the third was built
when nothing was left to choose. Every point is shown.
"""

from __future__ import annotations

import math
import os
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.later_models import LATER
from benchmarks.operator_models import MODELS, build
from benchmarks.unseen_models import UNSEEN
from carpool.onnx_graph.model_file import read_onnx
from carpool.onnx_graph.optimised import graph_of, optimised
from carpool.predictor.fit_database import read_model
from carpool.predictor.measured_operators import write_alone
from carpool.predictor.profile import Alone, Profile, RunRow, Setting
from carpool.predictor.profile_database import read_profiles, write_profile
from carpool.predictor.profile_file import begin_database
from watchdog_plugin.profiling.disturbance import LEAST_RUNS, Disturbance, pinned
from watchdog_plugin.profiling.profiled_session import ProfiledSession, feeds
from watchdog_plugin.profiling.profiler import origin
from watchdog_plugin.profiling.run_overhead import measure_overhead
from watchdog_plugin.profiling.single_operators import Wanted, measure_alone

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from onnx import ModelProto

    from benchmarks.records import Records
    from carpool.onnx_graph.operator_graph import Graph
    from carpool.predictor.latency_model import OperatorLatencyModel

__all__ = [
    "LISTS",
    "UnseenPoint",
    "built",
    "measure_unseen",
    "repeatability",
    "runs_on",
    "unseen_points",
]

# Their errors showed that operators alone had weights unlike trained ones, and that those after a
# parallel one find its threads awake, so they judge no longer.
_EXAMINED = ("gru_tagger", "squeeze_excite")
LISTS = {
    "chosen by": (*MODELS, *_EXAMINED),
    "left out": tuple(name for name in UNSEEN if name not in _EXAMINED),
    "built afterwards": tuple(LATER),
}
_ALL = LATER | UNSEEN | MODELS  # those that judge come first
_BATCHES = (1, 2, 4, 8)
_LONGEST_S = 1.5  # of a run; larger batches are left out
_ALONE_S, _BETWEEN_S = 60.0, 5.0
_SETTLING_S, _VISIT_S, _PATIENCE_S = 0.02, 0.06, 0.2  # of each batch size
_CALM, _COMPLETING_S = 5, 20.0  # undisturbed visits of each setting; seconds for those that lack
_LONG_S = 0.1  # of a run; caches need not be warm
_APART_S = 0.5  # between visits
_KNOWN = 4  # batch size of the one measured run
_MARK = "unseen: "  # before a model's name: the package's own profile of it has it without


class UnseenPoint(NamedTuple):
    """One model at one setting, in seconds.

    Attributes:
        model: Its name.
        setting: Batch and threads.
        measured_s: Median of a visit of runs.
        predicted_s: From operators measured alone.
        low_s: Lower end of the interval.
        high_s: Upper end of the interval.
        after_one_s: Prediction with one measured run, of batch 4 on one thread; None for that run.
        after_two_s: Prediction with one measured run, of batch 4 on two threads.
    """

    model: str
    setting: Setting
    measured_s: float
    predicted_s: float
    low_s: float
    high_s: float
    after_one_s: float | None
    after_two_s: float | None


def measure_unseen(
    database: Path,
    folder: Path,
    only: Sequence[str] | None,
    threads: Sequence[int],
    records: Records,
    minutes: float,
) -> None:
    """Measure operators alone, and runs, into a database, skipping what is in the records."""
    end_s = time.monotonic() + 60 * minutes
    begin_database(database)
    overheads = {count: measure_overhead(count) for count in threads}
    profiled_s = {count: -each.per_operator_s for count, each in overheads.items()}
    write_alone(database, origin(), (), overheads)
    for name in only or _ALL:
        if records.find("model", name=name):
            continue
        if time.monotonic() > end_s:
            _say(f"{minutes:g} minutes are over before {name}; --resume continues with it")
            return
        records.add(
            "model",
            name=name,
            load=os.getloadavg()[0],
            **_measured(database, folder, name, profiled_s),
        )


def _measured(
    database: Path, folder: Path, name: str, profiled_s: Mapping[int, float]
) -> dict[str, Any]:
    """Measure one model, and return the fields of its record."""
    path, began = built(name, folder), time.monotonic()
    best = optimised(path, file := read_onnx(path))
    model = _alone(database, best.graph)
    settings = [
        setting
        for count in profiled_s
        for setting in [Setting(batch, count) for batch in _BATCHES]
        if (model.predict(setting.batch, count, 0) or 0.0) <= _LONGEST_S
    ]
    wanted = [Wanted(*each) for each in model.unmeasured(settings)]
    batches = {count: [s.batch for s in settings if s.threads == count] for count in profiled_s}
    visits, rows = _Visits(file, folder, batches), {}
    for row in measure_alone(best, wanted, profiled_s, _ALONE_S, _say):
        rows[row[:2]] = row
        visits.visit(_BETWEEN_S)
    write_alone(database, origin(), rows.values(), {})
    runs = visits.completed()
    write_profile(database, Profile(_MARK + name, origin(), runs, ()))
    spent_s = time.monotonic() - began
    _say(f"{name}: {len(rows)} times of operators, {spent_s:.1f} s")
    return {
        "operators": len(wanted),
        "times": sum(isinstance(row, Alone) for row in rows.values()),
        "spent_s": round(spent_s, 1),
        "runs": [[*run.setting[:2], run.median_s, run.spread_s, run.samples] for run in runs],
    }


def runs_on(
    model: ModelProto, folder: Path, threads: int, batches: Sequence[int]
) -> Iterable[RunRow]:
    """Run a model at some batch sizes in a few visits, of which undisturbed ones count."""
    return _Visits(model, folder, {threads: batches}).completed()


def repeatability(folder: Path, threads: Sequence[int], each_s: float) -> str:
    """Run the models left out twice, and say how far apart both times are on this machine.

    Args:
        folder: Folder of the built models.
        threads: Numbers of threads.
        each_s: Seconds of visits of each model; between its two times all others are run.
    """
    first, second = (
        {
            name: _runs_for(built(name, folder), folder, threads, each_s)
            for name in LISTS["left out"]
        }
        for _ in range(2)
    )
    apart: dict[tuple[int, bool], list[float]] = {}
    for name, runs in first.items():
        for setting, (calm, seconds) in runs.items():
            again_calm, again_s = second[name][setting]
            kind = setting.threads, calm and again_calm
            apart.setdefault(kind, []).append(abs(again_s / seconds - 1))
    kinds = sorted(apart, key=lambda kind: (kind[0], not kind[1]))
    return "".join(_apart(*kind, apart[kind]) for kind in kinds)


def _apart(threads: int, calm: bool, apart: Sequence[float]) -> str:  # noqa: FBT001  a key's part
    kind = "undisturbed" if calm else "disturbed"
    return (
        f"{threads} thread{'s' * (threads > 1)}: the same {len(apart)} {kind} runs differ by "
        f"{np.mean(apart):.1%} in the mean, 90th percentile {np.quantile(apart, 0.9):.1%}\n"
    )


def _runs_for(
    path: Path, folder: Path, threads: Sequence[int], limit_s: float
) -> dict[Setting, tuple[bool, float]]:
    """Return, by setting, whether visits within a time limit were undisturbed, and their median."""
    visits = _Visits(read_onnx(path), folder, dict.fromkeys(threads, _BATCHES))
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s:
        visits.visit(_APART_S)
    return {run.setting: (visits.calm(run.setting) > 0, run.median_s) for run in visits.typical()}


class _Visits:
    """Runs of a model, in visits while its operators are measured alone.

    A virtual machine's neighbours use the same cores, which prolongs runs by half for fractions of
    a second or for minutes. So operators and runs are measured in turns, and of both only what was
    not disturbed counts, if there is any.
    """

    def __init__(
        self, model: ModelProto, folder: Path, batches: Mapping[int, Sequence[int]]
    ) -> None:
        self._runs = {
            threads: _Runs(model, folder, threads, some) for threads, some in batches.items()
        }
        self._visits: dict[Setting, list[tuple[bool, RunRow]]] = {
            Setting(batch, threads): [] for threads, some in batches.items() for batch in some
        }
        self._last_s = -math.inf

    def visit(self, between_s: float = 0.0) -> None:
        """Run it, unless the last visit was less than ``between_s`` ago."""
        if time.monotonic() > self._last_s + between_s:
            self._visit(self._visits)
            self._last_s = time.monotonic()

    def _visit(self, settings: Iterable[Setting]) -> None:
        for setting in settings:
            visit = self._runs[setting.threads].visit(setting.batch)
            self._visits[setting].append(visit)

    def completed(self) -> tuple[RunRow, ...]:
        """Run it until there are enough undisturbed visits, but not for ever; return `typical`."""
        end_s, lacking = time.monotonic() + _COMPLETING_S, list(self._visits)
        while lacking and time.monotonic() < end_s:
            self._visit(lacking)
            lacking = [setting for setting in lacking if self.calm(setting) < _CALM]
        return self.typical()

    def calm(self, setting: Setting) -> int:
        """Return the number of undisturbed visits."""
        return sum(calm for calm, _ in self._visits[setting])

    def typical(self) -> tuple[RunRow, ...]:
        """Return, of each setting, the visit with the middle median of undisturbed ones."""
        return tuple(map(_typical, self._visits.values()))


def _typical(visits: Sequence[tuple[bool, RunRow]]) -> RunRow:
    calm = sorted((run for calm, run in visits if calm), key=_median_s)
    return calm[(len(calm) - 1) // 2] if calm else min((run for _, run in visits), key=_median_s)


def _median_s(run: RunRow) -> float:
    return run.median_s


class _Runs:
    """A model on one number of threads, run again and again.

    On one thread, its own clock counts, which stops while other programs use the core.
    """

    def __init__(
        self, model: ModelProto, folder: Path, threads: int, batches: Sequence[int]
    ) -> None:
        data = model.SerializeToString()
        self._session = ProfiledSession(data, folder, threads, operators=False)
        self._clock = time.thread_time if threads == 1 else time.perf_counter
        self._threads, self._inputs = threads, {batch: feeds(model, batch) for batch in batches}
        self._disturbance = Disturbance()

    def visit(self, batch: int) -> tuple[bool, RunRow]:
        """Run it at a batch size; return whether it was undisturbed, and the times."""
        cores = self._disturbance.calmest(self._threads)
        with pinned(cores):
            self._disturbance.await_calm(cores, _PATIENCE_S)
            calm, times_s = self._times_s(self._inputs[batch], cores)
        mid, p90, p95, p99 = np.quantile(times_s, [0.5, 0.9, 0.95, 0.99]).tolist()
        setting = Setting(batch, self._threads)
        return calm, RunRow(setting, mid, p90, p95, p99, p90 - mid, len(times_s))

    def _times_s(
        self, inputs: Mapping[str, Any], cores: Sequence[int]
    ) -> tuple[bool, Sequence[float]]:
        """Run, short runs first without counting, as they warm the caches."""
        end_s, last_s = time.monotonic() + _SETTLING_S, 0.0
        while not last_s or time.monotonic() < end_s:
            last_s = self._run_s(inputs)
        count = 1 if last_s > _LONG_S else max(LEAST_RUNS, round(_VISIT_S / last_s))
        return self._disturbance.runs(lambda: self._run_s(inputs), count, math.inf, cores)

    def _run_s(self, inputs: Mapping[str, Any]) -> float:
        began = self._clock()
        self._session.run_s(inputs)
        return self._clock() - began


def unseen_points(database: Path, folder: Path) -> Iterable[UnseenPoint]:
    """Yield every measured point with its prediction."""
    profiles = {profile.model: profile for profile in read_profiles(database)}
    for name in _ALL:
        own = profiles.get(_MARK + name)
        if own is None:
            continue
        model = _alone(database, graph_of(path := built(name, folder), read_onnx(path)))
        measured_s = {run.setting: run.median_s for run in own.runs}
        for setting, run_s in measured_s.items():
            batch, threads, gpu = setting
            predicted_s = model.predict(batch, threads, gpu) or float("nan")
            interval = model.interval(batch, threads, gpu)
            low_s, high_s = interval or (float("nan"), float("nan"))
            after = (_after(model, measured_s, Setting(_KNOWN, known), setting) for known in (1, 2))
            yield UnseenPoint(name, setting, run_s, predicted_s, low_s, high_s, *after)


def _after(
    model: OperatorLatencyModel,
    measured_s: Mapping[Setting, float],
    known: Setting,
    setting: Setting,
) -> float | None:
    """Return the prediction at a setting once the run at another one is known."""
    if known not in measured_s or setting == known:
        return None
    batch, threads, gpu = setting
    return replace(model, runs={known: measured_s[known]}).predict(batch, threads, gpu)


def _alone(database: Path, graph: Graph) -> OperatorLatencyModel:
    """Return the latency model without the package's in-place profiles of its operators."""
    model, _ = read_model(database, graph, origin().hardware, origin().runtime, alone=True)
    return replace(model, runs={})


def built(name: str, folder: Path) -> Path:
    """Return the file of a model of either list, made if it is missing."""
    return build(name, folder, _ALL[name].make)


def _say(message: str) -> None:
    sys.stderr.write(message + "\n")
    sys.stderr.flush()
