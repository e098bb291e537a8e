"""Predict models from another processor's profiles: ``python -m benchmarks operators --foreign``.

The package's database was measured with the runtime's kernels for AVX-512. A runtime restricted to
those for AVX2 or SSE is, in everything that the laws consider, another processor: other kernels,
other blocks, another ratio of arithmetic to memory. That machine is calibrated, and each model is
predicted without measuring any of its operators; then it is run. Every point is kept.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.operators_unseen import LISTS, built, runs_on
from carpool.onnx_graph.model_file import read_onnx
from carpool.onnx_graph.optimised import graph_of
from carpool.predictor import graph_json
from carpool.predictor.calibration_file import from_dict, to_dict
from carpool.predictor.fit_database import read_model
from carpool.predictor.profile import Setting
from carpool.predictor.profile_file import default_database
from carpool.processor import runtime
from watchdog_plugin.profiling.calibrating import calibrate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from benchmarks.records import Records
    from carpool.predictor.calibration import Calibration
    from carpool.predictor.latency_model import OperatorLatencyModel
    from carpool.predictor.profile import RunRow

__all__ = ["ForeignPoint", "foreign_points", "measure_foreign"]

_BATCHES = (1, 2, 4, 8)
_CALIBRATING_S = 60.0
_LONGEST_S = 1.5  # of a run, as predicted; larger batches are left out
_MS_PER_S = 1000.0


class ForeignPoint(NamedTuple):
    """One model at one setting with one set of kernels, in seconds.

    Attributes:
        kernels: Kernels to which the runtime was restricted.
        model: Its name.
        setting: Batch and threads.
        measured_s: Median of the runs.
        predicted_s: From the package's database and the calibration.
        low_s: Lower end of the interval.
        high_s: Upper end of the interval.
        unscaled_s: Prediction without the calibration.
    """

    kernels: str
    model: str
    setting: Setting
    measured_s: float
    predicted_s: float
    low_s: float
    high_s: float
    unscaled_s: float


def measure_foreign(
    kernels: str,
    threads: Sequence[int],
    folder: Path,
    only: Sequence[str] | None,
    records: Records,
    minutes: float,
) -> None:
    """Calibrate this runtime and run the models, skipping what is in the records."""
    end_s = time.monotonic() + 60 * minutes
    record = records.last("calibration", kernels=kernels)
    if record is None:
        measured = calibrate(threads, _CALIBRATING_S, _say)
        records.add("calibration", kernels=kernels, calibration=to_dict(measured))
        calibration = measured
    else:
        calibration = from_dict(record["calibration"])
    for name in only or [name for names in LISTS.values() for name in names]:
        if records.find("foreign", kernels=kernels, name=name):
            continue
        if time.monotonic() > end_s:
            _say(f"{minutes:g} minutes are over before {name}; --resume continues with it")
            return
        records.add(
            "foreign",
            kernels=kernels,
            name=name,
            **_measured(name, folder, kernels, threads, calibration),
        )


def _measured(
    name: str, folder: Path, kernels: str, threads: Sequence[int], calibration: Calibration
) -> dict[str, Any]:
    path, began = built(name, folder), time.monotonic()
    file = read_onnx(path)
    graph = graph_of(path, file)
    _graph_file(folder, name, kernels).write_text(graph_json.to_json(graph))
    model = _predicted(folder, name, kernels, calibration)
    runs: list[RunRow] = []
    for count in threads:
        known = [(batch, model.predict(batch, count, 0)) for batch in _BATCHES]
        batches = [batch for batch, seconds in known if (seconds or 0.0) <= _LONGEST_S]
        runs += runs_on(file, folder, count, batches)
    _say(f"{kernels}, {name}: {time.monotonic() - began:.1f} s")
    return {
        "load": os.getloadavg()[0],
        "runs": [[*run.setting[:2], run.median_s, run.spread_s, run.samples] for run in runs],
    }


def foreign_points(records: Records, folder: Path) -> Iterable[ForeignPoint]:
    """Yield every measured point with its prediction."""
    for kernels in dict.fromkeys(record["kernels"] for record in records.find("calibration")):
        last = records.last("calibration", kernels=kernels)
        assert last is not None
        calibration = from_dict(last["calibration"])
        for each in records.find("foreign", kernels=kernels):
            model = _predicted(folder, each["name"], kernels, calibration)
            plain = _predicted(folder, each["name"], kernels, None)
            for batch, threads, measured_s, _, _ in each["runs"]:
                interval = model.interval(batch, threads, 0)
                low_s, high_s = interval or (float("nan"), float("nan"))
                predicted_s = model.predict(batch, threads, 0) or float("nan")
                unscaled_s = plain.predict(batch, threads, 0) or float("nan")
                yield ForeignPoint(
                    kernels,
                    each["name"],
                    Setting(batch, threads),
                    measured_s,
                    predicted_s,
                    low_s,
                    high_s,
                    unscaled_s,
                )


def _predicted(
    folder: Path, name: str, kernels: str, calibration: Calibration | None
) -> OperatorLatencyModel:
    graph = graph_json.from_json(_graph_file(folder, name, kernels).read_text())
    assert graph is not None
    hardware = f"kept to {kernels}"
    model, _ = read_model(
        default_database(), graph, hardware, runtime(), calibration=lambda _: calibration
    )
    return model


def _graph_file(folder: Path, name: str, kernels: str) -> Path:
    """Return the file for the runtime's optimised graph of a model with these kernels."""
    return folder / f"{name}.{kernels}.json"


def _say(message: str) -> None:
    sys.stderr.write(message + "\n")
    sys.stderr.flush()
