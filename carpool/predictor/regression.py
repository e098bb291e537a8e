"""Fitting of a predictor to profiles: laws by class, overheads of runs, and tails.

Coefficients are fitted to absolute rather than squared relative errors: other programs can only
lengthen a measurement, and such outliers must not be learned. On several threads, the prior of a
class is its one-thread law, scaled, plus a hand-over cost; measurements correct it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from carpool.predictor.fit import ALONE, Fit, ThreadsAndGpu
from carpool.predictor.least_squares import non_negative
from carpool.predictor.roofline_terms import terms
from carpool.predictor.thread_scaling import shared
from carpool.predictor.training_rows import tabled, together

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from carpool.predictor.profile import Profile, RunRow, Setting
    from carpool.predictor.training_rows import Rows

    Array = NDArray[np.float64]

__all__ = ["Samples"]

_CLOCK_US = 1.0  # times of shorter operators are not more exact than this
_ROUNDS, _NEAR = 6, 0.05  # rounds of reweighting; error beyond which it counts linearly
_SPREAD = 5.0  # factor by which rows with scattered measurements count less
_PULL = 0.5  # weight of the one-thread law as the prior of the law for several threads
_LEAST_ROWS = 8


@dataclass(frozen=True, slots=True)
class Samples:
    """Profiles, with their operators tabulated once for any number of fits.

    Attributes:
        profiles: All profiles.
        tables: Their operators by class.
        settings: Settings that the rows of the tables refer to.
        units: Units that the rows of the tables refer to.
        kernels: Number of operators and their total seconds, by profile and setting.
    """

    profiles: Sequence[Profile]
    tables: Mapping[str, Rows]
    settings: Sequence[Setting]
    units: Sequence[ThreadsAndGpu]
    kernels: Mapping[tuple[int, Setting], tuple[float, float]]
    _known: dict[tuple[str, bytes], Mapping[tuple[str, ThreadsAndGpu], Array]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @classmethod
    def of(cls, profiles: Sequence[Profile]) -> Samples:
        """Return the samples of profiles."""
        kernels: defaultdict[tuple[int, Setting], tuple[float, float]] = defaultdict(lambda: (0, 0))
        for number, profile in enumerate(profiles):
            for row in profile.operators:
                count, spent_s = kernels[number, row.setting]
                spent_s += row.count * row.median_s
                kernels[number, row.setting] = (count + row.count, spent_s)
        return cls(profiles, *tabled(profiles), kernels)

    def fit(self, kept: Iterable[int], wanted_classes: Collection[str] | None = None) -> Fit:
        """Return a fit of some of the profiles, without measuring its errors.

        Args:
            kept: Positions of the profiles.
            wanted_classes: Classes to learn laws of, together with their families; None for all.
        """
        chosen = sorted(kept)
        runs = [
            (self.kernels[number, run.setting], run)
            for number in chosen
            for run in self.profiles[number].runs
            if (number, run.setting) in self.kernels
        ]
        per_run_s, per_operator_s = {}, {}
        for unit in {ThreadsAndGpu(*run.setting[1:]) for _, run in runs}:
            of_unit = [pair for pair in runs if ThreadsAndGpu(*pair[1].setting[1:]) == unit]
            per_run_s[unit], per_operator_s[unit] = _overhead(of_unit)
        batches = sorted({run.setting.batch for _, run in runs})
        tails = _tails([run for _, run in runs])
        laws = self._laws(chosen, wanted_classes)
        return Fit(laws, per_run_s, per_operator_s, tuple(batches), tails)

    def _laws(
        self, chosen: Sequence[int], wanted_classes: Collection[str] | None
    ) -> dict[tuple[str, ThreadsAndGpu], Array]:
        classes: dict[str, Rows] = {}
        families: defaultdict[str, list[Rows]] = defaultdict(list)
        for operator_class, table in self.tables.items():
            rows = table.where(np.isin(table.profile, chosen))
            if len(rows):
                classes[operator_class] = rows
                families[f"any {rows.family}"].append(rows)
        if wanted_classes is not None:
            classes = {name: rows for name, rows in classes.items() if name in wanted_classes}
        wanted = {f"any {rows.family}" for rows in classes.values()}
        classes |= {name: together(tables) for name, tables in families.items() if name in wanted}
        laws: dict[tuple[str, ThreadsAndGpu], Array] = {}
        for operator_class, rows in classes.items():
            key = operator_class, np.unique(rows.profile).tobytes()
            if key not in self._known:  # a model that is left out has a few classes, not all
                self._known[key] = self._of_class(operator_class, rows)
            laws |= self._known[key]
        return laws

    def _of_class(self, operator_class: str, rows: Rows) -> dict[tuple[str, ThreadsAndGpu], Array]:
        laws: dict[tuple[str, ThreadsAndGpu], Array] = {}
        for number, unit in enumerate(self.units):  # those of one thread come first
            of_unit = rows.where(rows.unit == number)
            if len(of_unit) >= _LEAST_ROWS:
                one = laws.get((operator_class, unit._replace(threads=1)))
                laws |= _laws(operator_class, of_unit, unit, one)
        return laws


def _laws(
    operator_class: str, rows: Rows, unit: ThreadsAndGpu, one: Array | None
) -> dict[tuple[str, ThreadsAndGpu], Array]:
    """Return the laws of a class on a unit, given its law on one thread."""
    if unit.threads == 1 or one is None:
        return {(operator_class, unit): _law(rows, unit.threads)}
    with_others = shared(rows.family, rows.sizes)
    laws = {}
    for how, part in (("", with_others), (ALONE, ~with_others)):
        some = rows.where(part) if part.sum() >= _LEAST_ROWS else rows
        laws[operator_class + how, unit] = _law(some, unit.threads, one)
    return laws


def _law(rows: Rows, threads: int, one: Array | None = None) -> Array:
    """Return coefficients; ``one`` are those for one thread."""
    matrix = terms(rows.family, rows.sizes, rows.cold, threads)
    if one is None:
        return _fitted(matrix, rows)
    ones = np.ones(len(matrix))
    hand_over, share = _fitted(np.stack([ones, matrix[:, 1:] @ one[1:]], axis=1), rows)
    return _fitted(matrix, rows, np.array([hand_over, *(share * one[1:])]))


def _fitted(matrix: Array, rows: Rows, prior: Array | None = None) -> Array:
    """Return non-negative coefficients with small relative errors, pulled to ``prior`` if given."""
    scale = 1 / (rows.median_us + _CLOCK_US)
    steady = scale / np.hypot(1, _SPREAD * rows.spread_us * scale)
    weights, coefficients = steady, np.zeros(matrix.shape[1])
    for _ in range(_ROUNDS):
        weighted, target = matrix * weights[:, None], rows.median_us * weights
        if prior is not None:
            pull = np.sqrt(_PULL * (weighted**2).sum(axis=0))
            weighted = np.vstack([weighted, np.diag(pull)])
            target = np.concatenate([target, pull * prior])
        coefficients = non_negative(weighted, target, coefficients)
        error = np.abs(matrix @ coefficients - rows.median_us) * scale
        weights = steady * np.sqrt(np.minimum(1, _NEAR / np.maximum(error, 1e-9)))
    return coefficients


def _overhead(runs: Sequence[tuple[tuple[float, float], RunRow]]) -> tuple[float, float]:
    """Return a line over the number of operators: the time of runs besides their kernels.

    Its slope may be negative, as whole runs do not contain the time that timing an operator takes.
    """
    matrix = np.array([(1.0, count) for (count, _), _ in runs])
    wanted = np.array([run.median_s - spent_s for (_, spent_s), run in runs])
    even = np.array([1 / run.median_s for _, run in runs])
    weights, line = even, np.zeros(2)
    for _ in range(_ROUNDS):
        line = np.linalg.lstsq(matrix * weights[:, None], wanted * weights)[0]
        error = np.abs(matrix @ line - wanted) * even
        weights = even * np.sqrt(np.minimum(1, _NEAR / np.maximum(error, 1e-9)))
    return float(line[0]), float(line[1])


def _tails(runs: Sequence[RunRow]) -> dict[float, float]:
    if not runs:
        return {}
    columns = {0.9: "p90_s", 0.95: "p95_s", 0.99: "p99_s"}
    return {
        quantile: max(1.0, float(np.median([getattr(r, name) / r.median_s for r in runs])))
        for quantile, name in columns.items()
    }
