"""From profiles to a fit that knows its errors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from carpool.predictor.cross_validation import measured_errors
from carpool.predictor.regression import Samples

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.predictor.fit import Fit
    from carpool.predictor.profile import Profile

__all__ = ["fit_profiles"]


def fit_profiles(profiles: Sequence[Profile], families: Mapping[str, str] | None = None) -> Fit:
    """Everything that profiles of one origin tell.

    Args:
        profiles: Of models, measured operator by operator.
        families: Models that are told apart by name alone, when errors are measured: none is
            predicted from another of its family.
    """
    samples = Samples.of(profiles)
    every = range(len(profiles))
    errors = measured_errors(samples, every, families or {})
    return replace(samples.fit(every), errors=errors)
