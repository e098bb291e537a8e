"""Fitting of profiles, including the errors of the fit."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from carpool.predictor.cross_validation import measured_errors
from carpool.predictor.features import sized
from carpool.predictor.fit import ThreadsAndGpu
from carpool.predictor.regression import Samples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.predictor.fit import Fit
    from carpool.predictor.profile import Profile

__all__ = ["fit_profiles", "learn"]

_LEFT_OUT = 16  # number of models that are left out in turn to measure errors
_GROWN = 1.1  # growth of the number of models after which errors are measured again


def fit_profiles(profiles: Sequence[Profile], most: int | None = None) -> Fit:
    """Return the fit of profiles of one origin, with its errors.

    Args:
        profiles: Profiles of models, measured operator by operator.
        most: How many models to leave out to measure errors; None for each of them.
    """
    samples = Samples.of(profiles)
    every = range(len(profiles))
    errors = measured_errors(samples, every, most)
    return replace(samples.fit(every), errors=errors)


def learn(profiles: Sequence[Profile], newest: Profile, earlier: Fit | None) -> Fit:
    """Return a fit like `fit_profiles`, but update an earlier one where possible, which is faster.

    Laws of classes that the newest model lacks stay as they are. One model among many changes
    errors little, so they are measured again only when the number of models has grown by a tenth,
    or when the newest model was run with a number of threads whose errors are unknown.

    Args:
        profiles: All profiles of one origin.
        newest: The profile that was added or measured again.
        earlier: The fit of the others; None if there is none.
    """
    if earlier is None or _is_new(newest, earlier) or _is_grown(len(profiles)):
        return fit_profiles(profiles, most=_LEFT_OUT)
    wanted_classes = {sized(row.case).operator_class for row in newest.operators}
    fit = Samples.of(profiles).fit(range(len(profiles)), wanted_classes)
    return replace(fit, laws={**earlier.laws, **fit.laws}, errors=earlier.errors)


def _is_new(newest: Profile, earlier: Fit) -> bool:
    """Return whether a profile has runs of a unit whose errors are unknown."""
    known = {unit for unit, _ in earlier.errors}
    units = {ThreadsAndGpu(run.setting.threads, run.setting.gpu) for run in newest.runs}
    return not known or not units <= known


def _is_grown(count: int) -> bool:
    """Return whether ``count`` models are few, or have just reached a further tenth more."""
    return count <= _LEFT_OUT or int(_steps(count)) > int(_steps(count - 1))


def _steps(count: int) -> float:
    return math.log(count) / math.log(_GROWN)
