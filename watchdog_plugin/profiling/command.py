"""``carpool profile``: measures a model, and adds its operators' times to the profile database."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carpool.errors import ConfigError, Problem
from carpool.onnx_graph.model_file import BATCH, read_onnx, refuse_control_flow
from carpool.onnx_graph.optimised import graph_of, model_name
from carpool.onnx_graph.parts import dims
from carpool.predictor import grid_arguments
from carpool.predictor.fit_database import own_database, read_fit, write_fit
from carpool.predictor.fitting import learn
from carpool.predictor.profile import Profile
from carpool.predictor.profile_database import read_profiles, write_profile
from carpool.predictor.profile_file import begin_database
from watchdog_plugin.profiling.profiler import Grid, origin, profile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnx import ModelProto

    from carpool.onnx_graph.operator_graph import Graph
    from carpool.predictor.profile import RunRow

__all__ = ["main"]

_MS_PER_S = 1000.0
_HEADINGS = ("cores", "batch", "median ms", "p90 ms", "p95 ms", "p99 ms", "spread ms", "runs")
_THREADS = (1, 2)
_ENOUGH_MODELS = 8  # number from which the predictor learns from them alone


def main(argv: list[str]) -> int:
    """Measure a model, store the result and print it.

    Raises:
        ConfigError: A model or a database cannot be used.
        LoadError: The runtime cannot load or run the model.
    """
    parser = argparse.ArgumentParser(
        prog="carpool profile",
        description="Measure an ONNX model and its operators on this machine.",
    )
    grid_arguments.add_arguments(parser)
    parser.add_argument(
        "--cpu",
        type=grid_arguments.counts,
        help="cores (default: 1,2, as far as the machine has them)",
        metavar="SIZES",
    )
    parser.add_argument(
        "--budget",
        type=grid_arguments.seconds,
        default=60.0,
        help="time limit for measuring (60s); fitting comes after it",
    )
    parser.add_argument("--database", type=Path, help="profile database (default: your own)")
    arguments = parser.parse_args(argv)
    threads = _threads(arguments.cpu)
    model = read_onnx(arguments.model, grid_arguments.sizes(arguments))
    graph = _operators(arguments.model, model)
    database = arguments.database or own_database()
    if graph:
        begin_database(database)  # before a minute is spent
    grid = Grid(_batches(model, arguments.batch), threads, arguments.budget)
    folder = arguments.model.absolute().parent
    runs, operators, load_s, memory_mb = profile(model, folder, graph, grid, _say)
    measured = Profile(
        graph.model if graph else model_name(arguments.model),
        origin(),
        runs,
        operators,
        load_s,
        memory_mb,
        graph.fingerprint if graph else "",
    )
    kept = None
    try:
        if graph:
            _keep(database, measured)
            kept = database
    finally:  # what was measured is printed, even where it cannot be kept
        _tell(measured, kept, as_json=arguments.json)
    return 0


def _tell(measured: Profile, database: Path | None, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(_document(measured, database), indent=2) + "\n")
    else:
        sys.stdout.write(_table(measured, database))
    sys.stdout.flush()


def _threads(wanted: Sequence[int] | None) -> list[int]:
    """Return the numbers of threads to measure, none larger than the number of available cores.

    More threads would wait for one another, and their times would distort what is learned.
    """
    there = len(os.sched_getaffinity(0))
    if wanted is None:
        return [count for count in _THREADS if count <= there]
    if wanted[-1] > there:
        expected = f"at most {there}, the cores that this process may use"
        raise ConfigError([Problem("--cpu", f"{wanted[-1]}", expected)])
    return list(wanted)


def _operators(path: Path, model: ModelProto) -> Graph | None:
    """Return the model's operators; None, with a message, if only the whole model can be timed."""
    try:
        refuse_control_flow(path, model.graph)
        return graph_of(path, model)
    except ConfigError as error:
        for problem in error.problems:
            _say(f"{problem}")
        _say("measuring only the whole model; nothing is stored in the database")
        return None


def _batches(model: ModelProto, wanted: Sequence[int]) -> list[int]:
    first = [known[0] for value in model.graph.input if (known := dims(value))]
    if BATCH in first or not first:
        return list(wanted)
    fixed = next((size for size in first if isinstance(size, int)), 1)
    if list(wanted) != [fixed]:
        _say(f"the model's first dimension is {fixed}, so batches of {fixed} alone are measured")
    return [fixed]


def _keep(database: Path, measured: Profile) -> None:
    """Add the profile to the database, and learn from the database."""
    write_profile(database, measured)
    every = [each for each in read_profiles(database) if each.operators]
    for place in sorted({each.origin for each in every}):
        same = [each for each in every if each.origin == place]
        here = place == measured.origin
        earlier = read_fit(database, place)
        if len(same) >= _ENOUGH_MODELS and (here or earlier is None):
            _say(f"measured; learning from {len(same)} models")
            write_fit(database, place, learn(same, measured, earlier), len(same))
        elif here:
            more = f"{len(same)} of {_ENOUGH_MODELS} models measured on this processor and runtime"
            _say(f"{more}; until then predictions use another processor's profiles")


def _document(measured: Profile, database: Path | None) -> dict[str, Any]:
    return {
        "model": measured.model,
        "rows": [_row(run) for run in measured.runs],
        "load_s": round(measured.load_s, 4),
        "memory_mb": round(measured.memory_mb, 1),
        "operators": len(measured.operators),
        "hardware": measured.origin.hardware,
        "runtime": measured.origin.runtime,
        "database": str(database) if database else None,
    }


def _row(run: RunRow) -> dict[str, float]:
    times = {
        "latency_ms": run.median_s,
        "p90_ms": run.p90_s,
        "p95_ms": run.p95_s,
        "p99_ms": run.p99_s,
        "spread_ms": run.spread_s,
    }
    row = {"cpu": run.setting.threads, "gpu": run.setting.gpu, "batch": run.setting.batch}
    row |= {name: round(seconds * _MS_PER_S, 4) for name, seconds in times.items()}
    return row | {"samples": run.samples}


def _table(measured: Profile, database: Path | None) -> str:
    lines = [
        f"{measured.model}: loads in {measured.load_s:.2f} s, takes {measured.memory_mb:.0f} MB",
        f"on {measured.origin.hardware}, {measured.origin.runtime}",
    ]
    cells: list[tuple[str, ...]] = [_HEADINGS]
    for row in map(_row, measured.runs):
        times = [f"{row[name]:.4g}" for name in list(row)[3:-1]]
        cells.append((f"{row['cpu']:g}", f"{row['batch']:g}", *times, f"{row['samples']}"))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines += ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in cells]
    if database:
        lines.append(f"stored the times of {len(measured.operators)} operators in {database}")
    return "\n".join(lines) + "\n"


def _say(message: str) -> None:
    sys.stderr.write(f"carpool profile: {message}\n")
    sys.stderr.flush()
