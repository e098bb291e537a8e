"""How far off predictions are, measured on models that were left out of the fit."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from carpool.latency.operator_fit import Errors, Unit, is_short

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from carpool.latency.operator_fit import Fit
    from carpool.latency.operator_learning import Samples
    from carpool.latency.profile import Setting

__all__ = ["measured_errors"]

_FOLDS = 8
_LEAST = 20  # errors without which bounds stay guesses
_SHARE = (0.05, 0.95)


class _Error(NamedTuple):
    """log(measured / predicted) of one run of a model that was left out."""

    model: str
    unit: Unit
    short: bool
    error: float


def measured_errors(
    samples: Samples, known: Iterable[int], families: Mapping[str, str]
) -> dict[tuple[Unit, bool], Errors]:
    """By unit and length of runs, the errors for models that a fit does not know.

    Args:
        samples: Measured models.
        known: Positions of those that may be used.
        families: As in `fit_profiles`.
    """
    models: defaultdict[str, list[_Error]] = defaultdict(list)
    for error in _left_out(samples, sorted(known), families):
        models[error.model].append(error)
    plain: defaultdict[tuple[Unit, bool], list[float]] = defaultdict(list)
    settled: defaultdict[tuple[Unit, bool], list[float]] = defaultdict(list)
    other: defaultdict[tuple[Unit, bool], list[float]] = defaultdict(list)
    for found in models.values():
        for one in found:
            key = (one.unit, one.short)
            plain[key].append(one.error)
            for two in found:
                if one is not two:
                    pairs = settled if one.unit == two.unit else other
                    pairs[key].append(one.error - two.error)
    guess = Errors()
    return {
        key: Errors(
            _middle(plain[key], guess.plain),
            _middle(settled[key], guess.settled),
            _middle(other[key], guess.other),
        )
        for key in list(plain)
    }


def _middle(errors: Sequence[float], otherwise: tuple[float, float]) -> tuple[float, float]:
    if len(errors) < _LEAST:
        return otherwise
    low, high = np.quantile(errors, _SHARE).tolist()
    return float(low), float(high)


def _left_out(
    samples: Samples, known: Sequence[int], families: Mapping[str, str]
) -> Iterable[_Error]:
    names = {at: samples.profiles[at].model for at in known}
    names = {at: families.get(name, name) for at, name in names.items()}
    order = sorted(set(names.values()))
    for fold in range(min(_FOLDS, len(order))):
        out = set(order[fold::_FOLDS])
        fit = samples.fit(at for at in known if names[at] not in out)
        for at in known:
            if names[at] in out:
                yield from _errors(samples, fit, at)


def _errors(samples: Samples, fit: Fit, at: int) -> Iterable[_Error]:
    """Of the runs of one profile."""
    predicted_s: defaultdict[Setting, float] = defaultdict(float)
    for kind, table in samples.tables.items():
        rows = table.where(table.profile == at)
        for number, unit in enumerate(samples.units):
            some = rows.where(rows.unit == number)
            if not len(some):
                continue
            seconds = fit.seconds(kind, some.family, unit, some.sizes, some.cold)
            times = np.full(len(some), math.nan) if seconds is None else seconds * some.count
            for setting, time_s in zip(some.setting, times, strict=True):
                predicted_s[samples.settings[setting]] += float(time_s)
    profile = samples.profiles[at]
    for run in profile.runs:
        unit = Unit(*run.setting[1:])
        if unit in fit.per_run_s and run.setting in predicted_s:
            operators, _ = samples.kernels[at, run.setting]
            foretold_s = fit.run_s(unit, predicted_s[run.setting], operators)
            if math.isfinite(foretold_s):
                error = math.log(run.median_s / foretold_s)
                yield _Error(profile.model, unit, is_short(foretold_s), error)
