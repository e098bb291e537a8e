"""Test how well operators predict the latency of models: ``python -m benchmarks operators``.

Each model of the benchmark is predicted by a fit to the random networks and the other models only.
Every point is shown. With ``--measure`` all times are measured again on this machine, which should
be otherwise idle; without it they come from the package's database.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import statistics
import sys
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.foreign_report import foreign_report
from benchmarks.limited_kernels import KERNELS, run_limited
from benchmarks.machine import commit, machine
from benchmarks.operator_models import MODELS, build
from benchmarks.operator_report import Point, Speed, report
from benchmarks.operator_sweep import SWEEP
from benchmarks.operators_foreign import foreign_points, measure_foreign
from benchmarks.operators_unseen import LISTS, measure_unseen, repeatability, unseen_points
from benchmarks.records import Records
from benchmarks.unseen_report import unseen_report
from carpool.onnx_graph.model_file import read_onnx
from carpool.onnx_graph.optimised import graph_of, read_graph
from carpool.predictor.cross_validation import measured_errors
from carpool.predictor.fit import ThreadsAndGpu
from carpool.predictor.fit_database import read_model, write_fit
from carpool.predictor.fitting import fit_profiles
from carpool.predictor.latency_model import OperatorLatencyModel
from carpool.predictor.profile import Profile, Setting
from carpool.predictor.profile_database import read_profiles, write_profile
from carpool.predictor.profile_file import default_database
from carpool.predictor.regression import Samples
from watchdog_plugin.profiling.profiler import Grid, origin, rows
from watchdog_plugin.profiling.profiler import measure as runs_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from carpool.onnx_graph.operator_graph import Case
    from watchdog_plugin.profiling.profiler import Measured

__all__ = ["main"]

_RESULTS = Path(__file__).parent / "results" / "operators.md"
_MODELS = Path(__file__).parent.parent / "build" / "operator-models"
_CALIBRATION = Setting(4, 1)
_REPEATS, _LOADS = 20, 9

_BATCHES, _THREADS = (1, 2, 4, 8, 16), (1, 2)
_BUDGET_S = 60.0  # of a model, at most


def main(argv: list[str]) -> int:
    """Predict all models, print the report, and write it to benchmarks/results/."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks operators")
    parser.add_argument("--database", type=Path, default=default_database())
    parser.add_argument("--models", type=Path, default=_MODELS, help="folder of the built models")
    parser.add_argument("--measure", action="store_true", help="measure again, into the database")
    parser.add_argument("--only", help="measure these alone, separated by commas")
    parser.add_argument("--rounds", type=int, default=4, help="of each measurement (4)")
    parser.add_argument("--out", type=Path, default=_RESULTS)
    parser.add_argument(
        "--unseen", action="store_true", help="models composed of operators measured alone"
    )
    parser.add_argument(
        "--foreign", choices=KERNELS, help="models predicted on a runtime kept to these kernels"
    )
    parser.add_argument("--threads", default="1,2", help="for --unseen and --foreign (1,2)")
    parser.add_argument("--note", default="", help="about the machine, for the report")
    parser.add_argument("--resume", action="store_true", help="go on with what was measured")
    parser.add_argument("--minutes", type=float, default=12.0, help="to begin models in (12)")
    parser.add_argument(
        "--repeat",
        type=float,
        metavar="SECONDS",
        help="only run the unseen models twice, each for so long, and print how far apart they are",
    )
    flags = parser.parse_args(argv)
    if flags.repeat:
        sys.stdout.write(repeatability(flags.models, _threads(flags), flags.repeat))
        return 0
    if flags.foreign:
        run_limited(flags.foreign, ["operators", *argv])
        return _foreign(flags)
    if flags.unseen:
        if flags.out == _RESULTS:
            flags.out = _RESULTS.with_stem("operators_unseen")
            here = origin().hardware
            if flags.out.exists() and here not in flags.out.read_text():
                parser.error(f"{flags.out.name} is not of {here}: name another page with --out")
        return _unseen(flags)
    if flags.measure:
        only = flags.only.split(",") if flags.only else None
        _measure(flags.database, flags.models, only, flags.rounds)
    profiles = read_profiles(flags.database)
    samples = Samples.of(profiles)
    points = [point for name in MODELS for point in _points(name, samples, flags.models)]
    speeds = [_speed(name, flags.database, flags.models) for name in ("resnet50", "densenet121")]
    text = report(points, speeds, profiles[0].origin, len(profiles), commit())
    flags.out.parent.mkdir(parents=True, exist_ok=True)
    flags.out.write_text(text)
    sys.stdout.write(text)
    return 0


def _unseen(flags: argparse.Namespace) -> int:
    """Measure if asked, and report on the models that played no part in the fit."""
    database = flags.models.parent / "operators-unseen.sqlite"
    if flags.measure:
        if not flags.resume:
            database.unlink(missing_ok=True)
        only = flags.only.split(",") if flags.only else None
        records = Records(flags.out.with_suffix(".jsonl"), resume=flags.resume)
        records.add("run", commit=commit(), origin=origin(), machine=machine(), note=flags.note)
        measure_unseen(database, flags.models, only, _threads(flags), records, flags.minutes)
    points = list(unseen_points(database, flags.models))
    text = unseen_report(points, LISTS, origin(), commit(), flags.note)
    flags.out.write_text(text)
    sys.stdout.write(text)
    return 0


def _threads(flags: argparse.Namespace) -> list[int]:
    return [int(count) for count in flags.threads.split(",")]


def _foreign(flags: argparse.Namespace) -> int:
    """Measure with the given kernels if asked, and report on everything measured."""
    out = flags.out if flags.out != _RESULTS else _RESULTS.with_stem("operators_foreign")
    records = Records(out.with_suffix(".jsonl"), resume=flags.resume or not flags.measure)
    if flags.measure:
        only = flags.only.split(",") if flags.only else None
        records.add("run", commit=commit(), machine=machine(), note=flags.note)
        measure_foreign(flags.foreign, _threads(flags), flags.models, only, records, flags.minutes)
    text = foreign_report(list(foreign_points(records, flags.models)), commit(), flags.note)
    out.write_text(text)
    sys.stdout.write(text)
    return 0


def _points(name: str, samples: Samples, folder: Path) -> Iterable[Point]:
    """Predict a model from the others at all settings at which it was measured."""
    profiles = samples.profiles
    own = next((profile for profile in profiles if profile.model == name), None)
    if own is None:
        return
    others = [at for at, profile in enumerate(profiles) if profile is not own]
    graph = read_graph(_built(name, folder))
    fit = replace(samples.fit(others), errors=measured_errors(samples, others))
    known = _known([profiles[at] for at in others])
    plain = OperatorLatencyModel(graph, fit, known)
    measured_s = {run.setting: run.median_s for run in own.runs}
    runs = {_CALIBRATION: measured_s[_CALIBRATION]}
    settled = OperatorLatencyModel(graph, fit, known, runs=runs)
    for run in own.runs:
        batch, threads, gpu = run.setting
        predicted_s = plain.predict(batch, threads, gpu)
        interval = plain.interval(batch, threads, gpu)
        used = run.setting == _CALIBRATION
        after = None if used else settled.interval(batch, threads, gpu)
        yield Point(
            name,
            run.setting,
            run.median_s,
            run.spread_s,
            predicted_s or math.nan,
            interval.low_s if interval else math.nan,
            interval.high_s if interval else math.nan,
            None if used else settled.predict(batch, threads, gpu),
            after.low_s if after else None,
            after.high_s if after else None,
        )


def _known(profiles: Sequence[Profile]) -> Mapping[tuple[Case, ThreadsAndGpu], float]:
    times_s: defaultdict[tuple[Case, ThreadsAndGpu], list[float]] = defaultdict(list)
    for profile in profiles:
        for row in profile.operators:
            times_s[row.case, ThreadsAndGpu(*row.setting[1:])].append(row.median_s)
    return {key: statistics.mean(times) for key, times in times_s.items()}


def _speed(name: str, database: Path, folder: Path) -> Speed:
    path = _built(name, folder)
    graph = read_graph(path)
    loads, times = [], []
    for _ in range(_LOADS):
        began = time.perf_counter()
        graph = read_graph(path)
        loads.append(time.perf_counter() - began)
    known, _ = read_model(database, graph)
    for _ in range(_REPEATS):
        model = replace(known, runs={})  # it has predicted nothing yet, and would remember it
        for batch in (1, 3, 8, 16):
            began = time.perf_counter()
            model.predict(batch, 1, 0)
            times.append(time.perf_counter() - began)
    return Speed(name, min(loads), statistics.median(loads), statistics.median(times), max(times))


def _measure(database: Path, folder: Path, only: Sequence[str] | None, rounds: int) -> None:
    """Measure all or some models, then fit to everything in the database.

    Every single run is kept beside the models, for questions that medians do not answer.
    """
    for name in only or [*SWEEP, *MODELS]:
        path = _built(name, folder)
        model = read_onnx(path)
        graph = graph_of(path, model)
        grid = Grid(_BATCHES, _THREADS, _BUDGET_S, rounds)
        seen, load_s, memory_mb = runs_of(model, folder, grid, lambda _: None, operators=True)
        _keep(folder / f"{name}.runs.json.gz", seen)
        runs, operators = rows(seen, graph)
        write_profile(
            database,
            Profile(name, origin(), runs, operators, load_s, memory_mb, graph.fingerprint),
        )
        first = f"{runs[0].median_s * 1000:.3g} ms"
        sys.stderr.write(f"{name}: {first} at first, {len(operators)} operators\n")
    profiles = [each for each in read_profiles(database) if each.origin == origin()]
    write_fit(database, origin(), fit_profiles(profiles), len(profiles))


def _keep(path: Path, seen: Sequence[Measured]) -> None:
    data = [
        {"setting": one.setting, "whole": one.whole_s, "operators": one.operators} for one in seen
    ]
    with gzip.open(path, "wt", compresslevel=1) as file:
        json.dump(data, file)


def _built(name: str, folder: Path) -> Path:
    return build(name, folder, MODELS[name].make if name in MODELS else SWEEP[name])
