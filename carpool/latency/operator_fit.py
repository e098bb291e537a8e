"""What is learnt from profiles: how sizes become seconds, what a run costs besides, the errors.

Each class of operators has coefficients of its own for each number of threads and share of a GPU.
How wrong predictions are is measured on models that were left out of a fit, fold by fold, so that a
bound holds for a model that nobody has measured.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from carpool.latency.least_squares import non_negative
from carpool.latency.operator_sizes import sized
from carpool.latency.operator_terms import terms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from carpool.latency.operator_sizes import Sized
    from carpool.latency.profile import OperatorRow, Profile, RunRow, Setting

    Array = NDArray[np.float64]

__all__ = ["Fit", "Law", "Unit", "cold_share", "fit_profiles"]

_US_PER_S = 1e6
_CLOCK_US = 1.0  # operators that are shorter are told no more exactly than this
_ROUNDS, _FAR_OFF = 3, 0.3  # how often, and beyond which error, a row counts for less
_LEAST_ROWS = 8
_CACHE_BYTES, _ALL_COLD_BYTES = 8e6, 32e6


class Unit(NamedTuple):
    """What operators run on.

    Attributes:
        threads: Of the runtime.
        gpu: Percent of one GPU.
    """

    threads: int
    gpu: float = 0.0


class Law(NamedTuple):
    """Coefficients of the terms of one class of operators, in microseconds."""

    family: str
    coefficients: tuple[float, ...]

    def seconds(self, sizes: Array, cold: Array) -> Array:
        """Seconds of each of the operators with these sizes."""
        found = terms(self.family, sizes, cold) @ np.asarray(self.coefficients)
        seconds: Array = np.maximum(found, 0.0) / _US_PER_S
        return seconds


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted predictor.

    Attributes:
        laws: By class and unit; the class ``any FAMILY`` stands in for those never measured.
        per_run_s: By unit, what a run costs besides its operators.
        per_operator_s: By unit, what each operator costs besides its timed kernel; below 0
            where timing costs more.
        batches: The batch sizes that were measured.
        tails: Of the run time over its median, by quantile.
        bounds: Errors of models that were left out: the middle 90 % of log(measured / predicted).
        settled_bounds: Likewise once one setting of the model is known, on the same number of
            threads.
        other_bounds: Likewise on another number of threads.
    """

    laws: Mapping[tuple[str, Unit], Law]
    per_run_s: Mapping[Unit, float]
    per_operator_s: Mapping[Unit, float]
    batches: tuple[int, ...] = ()
    tails: Mapping[float, float] = field(default_factory=dict)
    bounds: tuple[float, float] = (-0.5, 0.5)
    settled_bounds: tuple[float, float] = (-0.3, 0.3)
    other_bounds: tuple[float, float] = (-0.4, 0.4)

    @property
    def units(self) -> list[Unit]:
        """What is known at all."""
        return sorted(self.per_run_s)

    def law(self, kind: str, family: str, unit: Unit) -> Law | None:
        """The law of a class, or of its family."""
        return self.laws.get((kind, unit)) or self.laws.get((f"any {family}", unit))


def cold_share(traffic_bytes: float) -> float:
    """How much of its weights a model finds no longer in a cache, by what a run moves."""
    return min(1.0, max(0.0, (traffic_bytes - _CACHE_BYTES) / (_ALL_COLD_BYTES - _CACHE_BYTES)))


class _Row(NamedTuple):
    """An operator of a profile, ready to be fitted."""

    sized: Sized
    cold: float
    median_us: float


_Rows = dict[Unit, list[_Row]]


def fit_laws(rows: Sequence[_Rows]) -> dict[tuple[str, Unit], Law]:
    """The laws of all classes from the rows of several models."""
    classes: defaultdict[tuple[str, Unit], list[_Row]] = defaultdict(list)
    for model in rows:
        for unit, found in model.items():
            for row in found:
                classes[row.sized.kind, unit].append(row)
                classes[f"any {row.sized.family}", unit].append(row)
    return {key: _law(found) for key, found in classes.items() if len(found) >= _LEAST_ROWS}


def _law(rows: Sequence[_Row]) -> Law:
    """Relative errors count, large ones less: a disturbed measurement is no law."""
    sizes = np.array([row.sized.sizes for row in rows], float).reshape(len(rows), -1)
    cold = np.array([row.cold for row in rows])
    matrix = terms(rows[0].sized.family, sizes, cold)
    target = np.array([row.median_us for row in rows])
    scale = 1 / (target + _CLOCK_US)
    weights, found = scale, np.zeros(matrix.shape[1])
    for _ in range(_ROUNDS):
        found = non_negative(matrix * weights[:, None], target * weights)
        error = np.abs(matrix @ found - target) * scale
        weights = scale * np.sqrt(np.minimum(1, _FAR_OFF / np.maximum(error, 1e-9)))
    return Law(rows[0].sized.family, tuple(found.tolist()))


def rows_of(profile: Profile) -> _Rows:
    """A profile's operators by unit."""
    found: _Rows = defaultdict(list)
    traffic: dict[Setting, float] = {}
    for row in profile.operators:
        setting = row.setting
        if setting not in traffic:
            traffic[setting] = _traffic_bytes(profile, setting)
        unit = Unit(setting.threads, setting.gpu)
        cold = cold_share(traffic[setting])
        found[unit].append(_Row(sized(row.case), cold, row.median_s * _US_PER_S))
    return dict(found)


def _traffic_bytes(profile: Profile, setting: Setting) -> float:
    return sum(row.count * _moved_bytes(row) for row in profile.operators if row.setting == setting)


def _moved_bytes(row: OperatorRow) -> float:
    weights = sum(form.size_bytes for form in row.case.inputs if form.constant)
    return weights + sum(form.size_bytes for form in row.case.outputs)


def fit_profiles(profiles: Sequence[Profile], families: Mapping[str, str] | None = None) -> Fit:
    """Everything that profiles of one origin tell.

    Args:
        profiles: Of models, measured operator by operator.
        families: Models that are told apart by name alone, when errors are measured: none is
            predicted from another of its family.
    """
    from carpool.latency.operator_errors import measured_errors  # noqa: PLC0415  it fits too

    fit = fit_without_errors(profiles, [rows_of(profile) for profile in profiles])
    return measured_errors(fit, profiles, families or {})


def fit_without_errors(profiles: Sequence[Profile], rows: Sequence[_Rows]) -> Fit:
    """As `fit_profiles`, with bounds that are guesses."""
    per_run_s, per_operator_s = {}, {}
    runs = [(profile, run) for profile in profiles for run in profile.runs if profile.operators]
    for unit in {Unit(run.setting.threads, run.setting.gpu) for _, run in runs}:
        of_unit = [pair for pair in runs if pair[1].setting[1:] == unit]
        per_run_s[unit], per_operator_s[unit] = _overhead(of_unit)
    batches = sorted({run.setting.batch for _, run in runs})
    tails = _tails([run for _, run in runs])
    return Fit(fit_laws(rows), per_run_s, per_operator_s, tuple(batches), tails)


def _overhead(runs: Sequence[tuple[Profile, RunRow]]) -> tuple[float, float]:
    """What runs take beyond their kernels, as a line over the number of operators.

    It may fall: timing an operator prolongs it a little, and whole runs are not timed inside.
    """
    rows, target, weights = [], [], []
    for profile, run in runs:
        operators = sum(row.count for row in profile.operators if row.setting == run.setting)
        rows.append((1.0, float(operators)))
        target.append(run.median_s - profile.operator_s(run.setting))
        weights.append(1 / run.median_s)
    scale = np.array(weights)
    found, *_ = np.linalg.lstsq(np.array(rows) * scale[:, None], np.array(target) * scale)
    return float(found[0]), float(found[1])


def _tails(runs: Sequence[RunRow]) -> dict[float, float]:
    if not runs:
        return {}
    columns = {0.9: "p90_s", 0.95: "p95_s", 0.99: "p99_s"}
    return {
        quantile: max(1.0, float(np.median([getattr(r, name) / r.median_s for r in runs])))
        for quantile, name in columns.items()
        if math.isfinite(quantile)
    }
