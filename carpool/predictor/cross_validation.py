"""Prediction errors, measured on models that were left out of the fit.

Errors of a model's runs are correlated, more so for similar batch sizes and equal numbers of
threads. So it is also measured how much of one run's error applies to another run, and which error
remains after this correction.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from carpool.predictor.fit import Carried, Errors, ThreadsAndGpu, regime

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from carpool.predictor.fit import Bounds, Fit
    from carpool.predictor.profile import Setting
    from carpool.predictor.regression import Samples

__all__ = ["measured_errors"]

_LEAST = 20  # least number of errors for bounds that are more than guesses
_QUANTILES = (0.05, 0.95)
_DOUBLINGS = 4  # larger differences in batch size are treated like this one


class _Error(NamedTuple):
    """The log(measured / predicted) of one run of a model that was left out."""

    model: str
    setting: Setting
    regime: int
    error: float

    @property
    def unit(self) -> ThreadsAndGpu:
        return ThreadsAndGpu(*self.setting[1:])

    @property
    def unit_and_regime(self) -> tuple[ThreadsAndGpu, int]:
        return self.unit, self.regime


def measured_errors(
    samples: Samples, known: Iterable[int], most: int | None = None
) -> dict[tuple[ThreadsAndGpu, int], Errors]:
    """Return the errors for models unknown to a fit, by unit and regime.

    Args:
        samples: Measured models.
        known: Positions of the models that may be used.
        most: How many models to leave out, one after the other; None for all.
    """
    errors_left_out = list(_left_out(samples, sorted(known), most))
    plain = _plain(errors_left_out)
    pairs = _pairs(errors_left_out)
    return {
        unit_and_regime: Errors(
            errors.plain,
            _carried(unit_and_regime, plain, pairs, same=True) or errors.settled,
            _carried(unit_and_regime, plain, pairs, same=False) or errors.other,
        )
        for unit_and_regime, errors in plain.items()
    }


def _plain(errors_left_out: Sequence[_Error]) -> dict[tuple[ThreadsAndGpu, int], Errors]:
    """Return the errors by unit and regime, of all regimes of the unit where one has too few."""
    guess = Errors().plain
    of_regime: defaultdict[tuple[ThreadsAndGpu, int], list[float]] = defaultdict(list)
    of_unit: defaultdict[ThreadsAndGpu, list[float]] = defaultdict(list)
    for one in errors_left_out:
        of_regime[one.unit_and_regime].append(one.error)
        of_unit[one.unit].append(one.error)
    return {
        (unit, length): Errors(_interval(errors) or _interval(of_unit[unit]) or guess)
        for (unit, length), errors in of_regime.items()
    }


_Pairs = defaultdict[tuple[ThreadsAndGpu, bool, int], list[tuple[_Error, _Error]]]


def _pairs(errors: Sequence[_Error]) -> _Pairs:
    """Return pairs of runs of one model.

    They are keyed by the unit of the first, whether the second has the same unit, and the
    difference of their batch sizes in doublings.
    """
    models: defaultdict[str, list[_Error]] = defaultdict(list)
    for error in errors:
        models[error.model].append(error)
    pairs: _Pairs = defaultdict(list)
    for runs in models.values():
        for one in runs:
            for two in runs:
                if one is not two:
                    same = one.unit == two.unit
                    apart = abs(math.log2(one.setting.batch / two.setting.batch))
                    pairs[one.unit, same, min(_DOUBLINGS, round(apart))].append((one, two))
    return pairs


def _carried(
    unit_and_regime: tuple[ThreadsAndGpu, int],
    plain: Mapping[tuple[ThreadsAndGpu, int], Errors],
    pairs: _Pairs,
    *,
    same: bool,
) -> tuple[Carried, ...]:
    """Return how another run's error applies to runs of a regime, by doublings between their sizes.

    At a distance of 0, the run itself, its whole error applies, with the bounds of the smallest
    known distance. Empty if there are too few pairs.
    """
    unit, length = unit_and_regime
    by_doublings: dict[int, Carried] = {}
    for doublings in range(int(same), _DOUBLINGS + 1):
        every = pairs[unit, same, doublings]
        alike = [pair for pair in every if pair[0].regime == length]
        enough = alike if len(alike) >= _LEAST else every
        if len(enough) >= _LEAST:
            errors = [(one.error, two.error, plain[two.unit_and_regime]) for one, two in enough]
            by_doublings[doublings] = _regressed(errors)
    if not by_doublings:
        return ()
    if same:
        by_doublings[0] = Carried(1.0, by_doublings[min(by_doublings)].bounds)
    return tuple(
        by_doublings[_nearest(by_doublings, doublings)] for doublings in range(_DOUBLINGS + 1)
    )


def _nearest(known: Iterable[int], doublings: int) -> int:
    """Return the nearest known distance, the larger of two; 0 matches only itself."""
    return min(
        known, key=lambda each: ((each == 0) != (doublings == 0), abs(each - doublings), -each)
    )


def _regressed(pairs: Sequence[tuple[float, float, Errors]]) -> Carried:
    """Return the regression of one run's error on another's, by least squares.

    Args:
        pairs: The error of the run to correct, that of the measured run, and the errors expected of
            the latter; what exceeds them is subtracted from both.
    """
    excess = np.array([errors.excess(two) for _, two, errors in pairs])
    one, two = np.array([pair[:2] for pair in pairs]).T
    own, left = two - excess, one - excess
    share = min(1.0, max(0.0, float(own @ left) / max(float(own @ own), 1e-12)))
    low, high = np.quantile(left - share * own, _QUANTILES).tolist()
    return Carried(share, (float(low), float(high)))


def _interval(errors: Sequence[float]) -> Bounds | None:
    """Return the 90 % interval of errors; None if there are too few."""
    if len(errors) < _LEAST:
        return None
    low, high = np.quantile(errors, _QUANTILES).tolist()
    return float(low), float(high)


def _left_out(samples: Samples, known: Sequence[int], most: int | None) -> Iterable[_Error]:
    names = {at: samples.profiles[at].model for at in known}
    for out in _spread(list(dict.fromkeys(names.values())), most):
        fit = samples.fit(at for at in known if names[at] != out)
        for at in known:
            if names[at] == out:
                yield from _errors(samples, fit, at)


def _spread(names: Sequence[str], most: int | None) -> Sequence[str]:
    """Return at most ``most`` of the names, evenly spaced and including the last one."""
    count = min(len(names), most or len(names))
    return [names[len(names) - 1 - at * len(names) // count] for at in range(count)]


def _errors(samples: Samples, fit: Fit, at: int) -> Iterable[_Error]:
    """Yield the errors of the runs of one profile."""
    predicted_s: defaultdict[Setting, float] = defaultdict(float)
    for operator_class, table in samples.tables.items():
        rows = table.where(table.profile == at)
        for number, unit in enumerate(samples.units):
            some = rows.where(rows.unit == number)
            if not len(some):
                continue
            seconds = fit.operator_seconds(operator_class, some.family, unit, some.sizes, some.cold)
            times = np.full(len(some), math.nan) if seconds is None else seconds * some.count
            for setting, time_s in zip(some.setting, times, strict=True):
                predicted_s[samples.settings[setting]] += float(time_s)
    profile = samples.profiles[at]
    for run in profile.runs:
        unit = ThreadsAndGpu(*run.setting[1:])
        if unit in fit.per_run_s and run.setting in predicted_s:
            operators, _ = samples.kernels[at, run.setting]
            foretold_s = fit.run_s(unit, predicted_s[run.setting], operators)
            if math.isfinite(foretold_s):
                error = math.log(run.median_s / foretold_s)
                yield _Error(profile.model, run.setting, regime(foretold_s), error)
