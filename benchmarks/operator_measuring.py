"""Measure the benchmark's models and the random networks into a profile database."""

from __future__ import annotations

import gzip
import json
import sys
from typing import TYPE_CHECKING

from benchmarks.operator_models import MODELS, build
from benchmarks.operator_sweep import SWEEP
from carpool.onnx_graph.model_file import read_onnx
from carpool.onnx_graph.optimised import graph_of
from carpool.predictor.fit_database import write_fit
from carpool.predictor.fitting import fit_profiles
from carpool.predictor.profile import Profile
from carpool.predictor.profile_database import read_profiles, write_profile
from watchdog_plugin.profiling.profiler import Grid, origin, rows
from watchdog_plugin.profiling.profiler import measure as runs_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from watchdog_plugin.profiling.profiler import Measured

__all__ = ["measure"]

_BATCHES, _THREADS = (1, 2, 4, 8, 16), (1, 2)
_BUDGET_S = 60.0  # of a model, at most


def measure(database: Path, folder: Path, only: Sequence[str] | None, rounds: int) -> None:
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
    if name in MODELS:
        return build(name, folder)
    path = folder / f"{name}.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(SWEEP[name]().SerializeToString())
    return path
