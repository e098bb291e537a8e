"""How far off predictions are, measured on models that were left out of the fit."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from carpool.latency.operator_fit import Unit, fit_without_errors, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from carpool.latency.operator_fit import Fit
    from carpool.latency.profile import Profile

__all__ = ["measured_errors"]

_FOLDS = 8
_LEAST = 20  # errors without which bounds stay guesses
_SHARE = (0.05, 0.95)


class _Error(NamedTuple):
    """log(measured / predicted) of one run of a model that was left out."""

    model: str
    unit: Unit
    error: float


def measured_errors(fit: Fit, profiles: Sequence[Profile], families: Mapping[str, str]) -> Fit:
    """The fit with bounds for models that it does not know."""
    errors = list(_left_out(profiles, families))
    if len(errors) < _LEAST:
        return fit
    same: list[float] = []
    other: list[float] = []
    models: defaultdict[str, list[_Error]] = defaultdict(list)
    for error in errors:
        models[error.model].append(error)
    for found in models.values():
        for one in found:
            for two in found:
                if one is not two:
                    pairs = same if one.unit == two.unit else other
                    pairs.append(one.error - two.error)
    return replace(
        fit,
        bounds=_middle([error.error for error in errors], fit.bounds),
        settled_bounds=_middle(same, fit.settled_bounds),
        other_bounds=_middle(other, fit.other_bounds),
    )


def _middle(errors: Sequence[float], otherwise: tuple[float, float]) -> tuple[float, float]:
    if len(errors) < _LEAST:
        return otherwise
    low, high = np.quantile(errors, _SHARE).tolist()
    return float(low), float(high)


def _left_out(profiles: Sequence[Profile], families: Mapping[str, str]) -> Iterable[_Error]:
    rows = [rows_of(profile) for profile in profiles]
    names = [families.get(profile.model, profile.model) for profile in profiles]
    order = sorted(set(names))
    for fold in range(min(_FOLDS, len(order))):
        out = set(order[fold::_FOLDS])
        kept = [at for at, name in enumerate(names) if name not in out]
        fit = fit_without_errors([profiles[at] for at in kept], [rows[at] for at in kept])
        for at, name in enumerate(names):
            if name in out:
                yield from _errors(fit, profiles[at])


def _errors(fit: Fit, profile: Profile) -> Iterable[_Error]:
    rows = rows_of(profile)
    settings = {
        unit: [row.setting for row in profile.operators if Unit(*row.setting[1:]) == unit]
        for unit in rows
    }
    counts = {
        unit: [row.count for row in profile.operators if Unit(*row.setting[1:]) == unit]
        for unit in rows
    }
    for run in profile.runs:
        unit = Unit(*run.setting[1:])
        seconds, operators = fit.per_run_s.get(unit, math.nan), 0
        for row, setting, count in zip(
            rows.get(unit, ()), settings.get(unit, ()), counts.get(unit, ()), strict=True
        ):
            if setting != run.setting:
                continue
            law = fit.law(row.sized.kind, row.sized.family, unit)
            sizes = np.array([row.sized.sizes], float)
            one_s = float(law.seconds(sizes, np.array([row.cold]))[0]) if law else math.nan
            seconds += count * one_s
            operators += count
        seconds += fit.per_operator_s.get(unit, 0.0) * operators
        if operators and seconds > 0:
            yield _Error(profile.model, unit, math.log(run.median_s / seconds))
