"""Adapts laws learned on one machine to another that was calibrated.

A law is a sum of terms, each bounded by one resource: the start of an operator, arithmetic,
caches or memory. A calibration times a few reference operators on the machine. Comparing these
times with the laws' predictions gives a factor for each resource: one for all operators for calls,
caches and memory, and one for each class for arithmetic, since types and kernels differ.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from carpool.predictor.features import WHOLE, sized
from carpool.predictor.fit import ALONE, ThreadsAndGpu, cold_share
from carpool.predictor.least_squares import non_negative
from carpool.predictor.roofline_terms import BOUNDS, WORK

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from carpool.predictor.fit import Fit
    from carpool.predictor.profile import Alone, Origin, Overhead

    Array = NDArray[np.float64]
    Laws = Mapping[tuple[str, ThreadsAndGpu], Array]

__all__ = ["Calibration", "scaled"]

_US_PER_S = 1e6
_PULL = 0.5  # weight of the ratio of total times, which decides if terms are hard to separate
_MOST = 8.0  # a factor is at most this many times larger or smaller than that ratio


@dataclass(frozen=True)
class Calibration:
    """Measurements that characterize a machine.

    Attributes:
        origin: The machine and its runtime.
        rows: Reference operators, measured alone.
        overheads: Overhead of a run besides its operators, by number of threads.
    """

    origin: Origin
    rows: tuple[Alone, ...]
    overheads: Mapping[int, Overhead]

    def with_others_of(self, earlier: Calibration | None) -> Calibration:
        """Return this calibration, completed with an earlier one's other numbers of threads."""
        if earlier is None:
            return self
        timed = {row.setting.threads for row in self.rows}
        others = tuple(row for row in earlier.rows if row.setting.threads not in timed)
        own = {count: each for count, each in self.overheads.items() if count in timed}
        overheads = {**self.overheads, **earlier.overheads, **own}
        return replace(self, rows=others + self.rows, overheads=overheads)


class _Expected(NamedTuple):
    """A reference operator: its time predicted by the laws, by bound, and its measured time."""

    operator_class: str
    family: str
    parts_us: Mapping[str, float]
    measured_us: float

    @property
    def ratio(self) -> float:
        """Measured time divided by expected time."""
        return self.measured_us / sum(self.parts_us.values())


class _Factors(NamedTuple):
    """How much longer everything takes than on the laws' machine, by bound.

    Attributes:
        shared: Factors for all operators, by bound.
        classes: Factors for arithmetic, by class.
        families: The same for classes without a reference operator.
        level: Factor for everything else.
        rest: What remains of a class's reference operators, by class: their measured time, divided
            by that of the law with these factors.
    """

    shared: Mapping[str, float]
    classes: Mapping[str, float]
    families: Mapping[tuple[str, bool], float]
    level: float
    rest: Mapping[str, float]

    def of(self, operator_class: str, family: str) -> Array:
        """Return one factor for each term of a class's law."""
        work = self.classes.get(
            operator_class, self.families.get(_family(operator_class, family), self.level)
        )
        return np.array([work if by == WORK else self.shared[by] for by in BOUNDS[family]])


def scaled(
    fit: Fit,
    calibration: Calibration,
    families: Mapping[str, str],
    own: Collection[ThreadsAndGpu],
) -> Fit:
    """Return a fit for the calibrated machine.

    Classes without a law, but with a reference operator, get that of their family, so multiplied
    that it yields the time of that operator: a kernel without vector instructions takes tens of
    times as long as its family, though the law may consist of memory traffic.

    Args:
        fit: Fit with laws, of this processor or another one, for each number of threads.
        calibration: Calibration of the machine to predict for.
        families: Requested classes, each with its family.
        own: Units whose laws are from this processor and are kept.
    """
    classes = {f"any {family}": family for family in families.values()} | dict(families)
    laws = dict(fit.laws)
    for unit in map(ThreadsAndGpu, calibration.overheads):
        stays = unit in own
        if stays and all((operator_class, unit) in laws for operator_class in families):
            continue
        rows = [row for row in calibration.rows if row.setting.threads == unit.threads]
        factors = _factors(_expected(fit, unit, rows))
        if factors:
            laws |= _scaled(fit.laws, factors, classes, unit, stays=stays)
    return replace(fit, laws=laws)


def _scaled(
    laws: Laws, factors: _Factors, classes: Mapping[str, str], unit: ThreadsAndGpu, *, stays: bool
) -> Laws:
    """Return laws of a unit times the machine's factors, without existing ones if they stay."""
    scaled = {}
    for operator_class, family in classes.items():
        for how in ("", ALONE):
            law, rest = laws.get((operator_class + how, unit)), 1.0
            if law is not None and stays:
                continue
            if law is None and operator_class in factors.classes:
                law, rest = laws.get((f"any {family}{how}", unit)), factors.rest[operator_class]
            if law is not None:
                scaled[operator_class + how, unit] = law * factors.of(operator_class, family) * rest
    return scaled


def _expected(fit: Fit, unit: ThreadsAndGpu, rows: Iterable[Alone]) -> list[_Expected]:
    """Return the reference operators for which the laws predict a time."""
    expected = []
    for row in rows:
        size = sized(row.case)
        weights = sum(tensor.size_bytes for tensor in row.case.inputs if tensor.constant)
        moved = weights + sum(tensor.size_bytes for tensor in row.case.outputs)
        cold = np.array([cold_share(moved)])
        parts = fit.operator_parts(
            size.operator_class, size.family, unit, np.array([size.sizes]), cold
        )
        if parts is not None and parts.sum() > 0:
            by: defaultdict[str, float] = defaultdict(float)
            for bound, spent_us in zip(BOUNDS[size.family], parts[0].tolist(), strict=True):
                by[bound] += spent_us
            expected.append(
                _Expected(size.operator_class, size.family, by, row.seconds * _US_PER_S)
            )
    return expected


def _factors(rows: Sequence[_Expected]) -> _Factors | None:
    """Return the factors that explain the rows best; None if there are no rows.

    The fit is regularized: a class's factor is pulled towards the median ratio of its operators,
    the other factors towards that of all operators.
    """
    if not rows:
        return None
    level = median(row.ratio for row in rows)
    alike: defaultdict[str, list[float]] = defaultdict(list)
    for row in rows:
        alike[row.operator_class].append(row.ratio)
    whole = {name: median(ratios) for name, ratios in alike.items()}
    shared = [by for by in dict.fromkeys(b for bs in BOUNDS.values() for b in bs) if by != WORK]
    prior = np.array([*whole.values(), *[level] * len(shared)])
    place = {name: at for at, name in enumerate([*whole, *shared])}
    matrix = np.zeros((len(rows), len(place)))
    for number, row in enumerate(rows):
        for by, spent_us in row.parts_us.items():
            matrix[number, place[row.operator_class if by == WORK else by]] += (
                spent_us / row.measured_us
            )
    pull = np.diag(_PULL / prior)
    target = np.array([1.0] * len(rows) + [_PULL] * len(place))
    factors = non_negative(np.vstack([matrix, pull]), target)
    factors = np.clip(factors, prior / _MOST, prior * _MOST)
    classes = {name: float(factors[place[name]]) for name in whole}
    rests: defaultdict[str, list[float]] = defaultdict(list)
    for row, explained in zip(rows, matrix @ factors, strict=True):
        rests[row.operator_class].append(1 / explained)
    return _Factors(
        {by: float(factors[place[by]]) for by in shared},
        classes,
        _of_families(rows, classes),
        level,
        {name: median(of) for name, of in rests.items()},
    )


def _family(operator_class: str, family: str) -> tuple[str, bool]:
    """Return the family, in which integer products form one of their own."""
    return family, operator_class.endswith(WHOLE)


def _of_families(
    rows: Iterable[_Expected], classes: Mapping[str, float]
) -> dict[tuple[str, bool], float]:
    """Return factors for classes without a reference operator, by family."""
    logs: defaultdict[tuple[str, bool], dict[str, float]] = defaultdict(dict)
    for row in rows:
        logs[_family(row.operator_class, row.family)][row.operator_class] = math.log(
            classes[row.operator_class]
        )
    return {family: math.exp(fmean(of.values())) for family, of in logs.items()}
