"""Models composed of operators measured alone: ``python -m benchmarks operators --unseen``.

Each model's operators are measured alone, within a minute, and the model is predicted from them;
then it is run, and the two are compared. How operators are composed, and how wide intervals are,
was chosen by the first list of models; the second played no part in it. Every point is shown.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.operator_models import MODELS
from benchmarks.unseen_models import UNSEEN
from carpool.onnx_graph.model_file import read_onnx
from carpool.onnx_graph.optimised import graph_of, optimised
from carpool.predictor.fit_database import read_model
from carpool.predictor.measured_operators import write_alone
from carpool.predictor.profile import Profile, RunRow, Setting
from carpool.predictor.profile_database import read_profiles, write_profile
from carpool.predictor.profile_file import begin_database
from watchdog_plugin.profiling.profiler import Grid, origin, rows
from watchdog_plugin.profiling.profiler import measure as runs_of
from watchdog_plugin.profiling.session import ProfiledSession, feeds
from watchdog_plugin.profiling.single_operators import Wanted, measure_alone, measure_overhead

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from onnx import ModelProto

    from carpool.predictor.graph import Graph
    from carpool.predictor.latency_model import OperatorLatencyModel

__all__ = ["LISTS", "UnseenPoint", "measure_unseen", "unseen_points"]

LISTS = {"chosen by": tuple(MODELS), "left out": tuple(UNSEEN)}
_ALL = MODELS | UNSEEN
_BATCHES, _THREADS = (1, 2, 4, 8), (1, 2)
_SETTINGS = [Setting(batch, threads) for threads in _THREADS for batch in _BATCHES]
_ALONE_S, _RUNS_S, _ONE_S = 60.0, 6.0, 1.5
_WARM_UPS, _LEAST_RUNS, _MOST_RUNS = 3, 5, 500
_KNOWN = Setting(4, 1)
_MARK = "unseen: "  # before a model's name: the package's own profile of it has it without


class UnseenPoint(NamedTuple):
    """One model at one setting, in seconds; ``settled`` ones know the model's run at one setting.

    Attributes:
        model: Its name.
        setting: Batch and threads.
        measured_s: The median of runs.
        predicted_s: From operators measured alone.
        low_s: Of the interval.
        high_s: Likewise.
        settled_s: Predicted with one measured point; None at that point.
    """

    model: str
    setting: Setting
    measured_s: float
    predicted_s: float
    low_s: float
    high_s: float
    settled_s: float | None


def measure_unseen(database: Path, folder: Path, only: Sequence[str] | None) -> None:
    """Measure operators alone, and runs, into a database."""
    begin_database(database)
    overheads = {threads: measure_overhead(threads) for threads in _THREADS}
    write_alone(database, origin(), (), overheads)
    for name in only or _ALL:
        path = _built(name, folder)
        began = time.monotonic()
        best = optimised(path, read_onnx(path))
        model = _alone(database, best.graph)
        wanted = [Wanted(*each) for each in model.unmeasured(_SETTINGS)]
        alone = list(measure_alone(best, wanted, _ALONE_S, _say))
        write_alone(database, origin(), alone, {})
        spent_s = time.monotonic() - began
        model_file = read_onnx(path)
        grid = Grid(_BATCHES, _THREADS[1:], _RUNS_S)
        seen, _, _ = runs_of(model_file, folder, grid, lambda _: None, operators=False)
        runs = (*_on_one_thread(model_file, folder), *rows(seen, None)[0])
        write_profile(database, Profile(_MARK + name, origin(), runs, ()))
        _say(f"{name}: {len(wanted)} operators alone in {spent_s:.1f} s")


def _on_one_thread(model: ModelProto, folder: Path) -> Iterable[RunRow]:
    """By the thread's own clock, which does not go on while other programs have the core."""
    session = ProfiledSession(model.SerializeToString(), folder, 1, operators=False)
    for batch in _BATCHES:
        inputs, times, end_s = feeds(model, batch), list[float](), time.monotonic() + _ONE_S
        for _ in range(_WARM_UPS):
            session.run_s(inputs)
        while len(times) < _LEAST_RUNS or (time.monotonic() < end_s and len(times) < _MOST_RUNS):
            began = time.thread_time()
            session.run_s(inputs)
            times.append(time.thread_time() - began)
        mid, p90, p95, p99 = np.quantile(times, [0.5, 0.9, 0.95, 0.99]).tolist()
        yield RunRow(Setting(batch, 1), mid, p90, p95, p99, p90 - mid, len(times))


def unseen_points(database: Path, folder: Path) -> Iterable[UnseenPoint]:
    """Every point that was measured, predicted."""
    profiles = {profile.model: profile for profile in read_profiles(database)}
    for name in _ALL:
        own = profiles.get(_MARK + name)
        if own is None:
            continue
        model = _alone(database, graph_of(path := _built(name, folder), read_onnx(path)))
        measured_s = {run.setting: run.median_s for run in own.runs}
        settled = replace(model, runs={_KNOWN: measured_s[_KNOWN]})
        for setting, run_s in measured_s.items():
            batch, threads, gpu = setting
            predicted_s = model.predict(batch, threads, gpu) or float("nan")
            interval = model.interval(batch, threads, gpu)
            low_s, high_s = interval or (float("nan"), float("nan"))
            after_s = None if setting == _KNOWN else settled.predict(batch, threads, gpu)
            yield UnseenPoint(name, setting, run_s, predicted_s, low_s, high_s, after_s)


def _alone(database: Path, graph: Graph) -> OperatorLatencyModel:
    """The model without what the package's profiles know of its operators in place."""
    model, _ = read_model(database, graph, origin().hardware, origin().runtime, alone=True)
    return replace(model, runs={})


def _built(name: str, folder: Path) -> Path:
    path = folder / f"{name}.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_ALL[name].make().SerializeToString())
    return path


def _say(message: str) -> None:
    sys.stderr.write(message + "\n")
    sys.stderr.flush()
