"""From profiles to a fit that knows its errors."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from carpool.predictor.cross_validation import measured_errors
from carpool.predictor.features import sized
from carpool.predictor.fit import ThreadsAndGpu
from carpool.predictor.regression import Samples

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.predictor.fit import Fit
    from carpool.predictor.profile import Profile

__all__ = ["fit_profiles", "learn"]

_LEFT_OUT = 16  # models, one after the other, to measure errors
_GROWN = 1.1  # times as many models: then errors are measured again


def fit_profiles(
    profiles: Sequence[Profile],
    families: Mapping[str, str] | None = None,
    most: int | None = None,
) -> Fit:
    """Everything that profiles of one origin tell.

    Args:
        profiles: Of models, measured operator by operator.
        families: Models that are told apart by name alone, when errors are measured: none is
            predicted from another of its family.
        most: How many models are left out to measure errors; None: each of them.
    """
    samples = Samples.of(profiles)
    every = range(len(profiles))
    errors = measured_errors(samples, every, families or {}, most)
    return replace(samples.fit(every), errors=errors)


def learn(profiles: Sequence[Profile], newest: Profile, earlier: Fit | None) -> Fit:
    """As `fit_profiles`, but quickly, from what is known already.

    Laws of classes that the newest model lacks stay as they are. One model among many changes
    errors little; they are measured again whenever there are a tenth more, or where the newest was
    run with a number of threads whose errors are not known.

    Args:
        profiles: All of one origin.
        newest: The one of them that was added or measured again.
        earlier: What was learned from the others; None: nothing.
    """
    if earlier is None or _is_new(newest, earlier) or _is_grown(len(profiles)):
        return fit_profiles(profiles, most=_LEFT_OUT)
    kinds = {sized(row.case).kind for row in newest.operators}
    fit = Samples.of(profiles).fit(range(len(profiles)), kinds)
    return replace(fit, laws={**earlier.laws, **fit.laws}, errors=earlier.errors)


def _is_new(newest: Profile, earlier: Fit) -> bool:
    """Whether a profile has runs of a unit whose errors are not known; at first none are."""
    known = {unit for unit, _ in earlier.errors}
    units = {ThreadsAndGpu(run.setting.threads, run.setting.gpu) for run in newest.runs}
    return not known or not units <= known


def _is_grown(count: int) -> bool:
    """Whether so many are a tenth more than when that was last so; so it is while they are few."""
    return count <= _LEFT_OUT or int(_steps(count)) > int(_steps(count - 1))


def _steps(count: int) -> float:
    return math.log(count) / math.log(_GROWN)
