"""Latency models of ONNX files, from their operators and a profile database."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from carpool.errors import ConfigError, Problem
from carpool.predictor.calibration_file import read_calibration
from carpool.predictor.fit_database import read_model, usual_database
from carpool.predictor.profile import Setting
from carpool.processor import processor, runtime

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from carpool.predictor.latency_model import OperatorLatencyModel

__all__ = ["read_operators"]

_MS_PER_S = 1000.0


def read_operators(
    path: Path,
    database: Path | None = None,
    dims: Mapping[str, int] | None = None,
    measured: Iterable[Mapping[str, float]] = (),
    load_s: float | None = None,
    memory_mb: float | None = None,
) -> OperatorLatencyModel:
    """Return the latency model of an ONNX file.

    Args:
        path: The file; its weights are not needed.
        database: The profile database; None for the user's own, or else the package's.
        dims: Sizes of free dimensions other than the batch.
        measured: Runs of the model itself: ``batch``, ``cpu`` and ``latency_ms`` of each.
        load_s: Seconds to load it, to override the database.
        memory_mb: Its memory, to override the database.

    Raises:
        ConfigError: the model or the database cannot be used.
    """
    from carpool.onnx_graph.optimised import read_graph  # noqa: PLC0415  it needs the runtime

    graph = read_graph(path, dims)
    model, _ = read_model(
        database or usual_database(),
        graph,
        processor(),
        runtime(),
        calibration=read_calibration,
    )
    if unknown := model.unknown_operators():
        op_types, fix = ", ".join(unknown), "carpool predict measures them, or carpool profile"
        expected = "operators that a profile database knows"
        raise ConfigError([Problem(str(path), op_types, expected, fix)])
    runs = {
        Setting(int(run["batch"]), int(run["cpu"])): run["latency_ms"] / _MS_PER_S
        for run in measured
    }
    return dataclasses.replace(
        model,
        runs=runs or model.runs,
        load_s=model.load_s if load_s is None else load_s,
        memory_mb=model.memory_mb if memory_mb is None else memory_mb,
    )
