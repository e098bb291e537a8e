"""What is learnt from profiles, as a value: how sizes become seconds, what a run costs, the errors.

Each class of operators has coefficients of its own for each number of threads and share of a GPU;
on several threads a second set for those of its operators that one thread does alone. How any of
it is learnt is `operator_learning`'s business.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from carpool.latency.operator_terms import terms
from carpool.latency.operator_threads import shared

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["ALONE", "Errors", "Fit", "Unit", "cold_share", "is_short"]

ALONE = ", alone"  # after a class: those of its operators that threads do not share
_US_PER_S = 1e6
_LEAST_S, _SHORT_S = 1e-6, 1e-3
_CACHE_BYTES, _ALL_COLD_BYTES = 8e6, 32e6


class Unit(NamedTuple):
    """What operators run on.

    Attributes:
        threads: Of the runtime.
        gpu: Percent of one GPU.
    """

    threads: int
    gpu: float = 0.0


class Errors(NamedTuple):
    """Where log(measured / predicted) of runs lies with a probability of 90 %.

    Attributes:
        plain: For a model nobody measured.
        settled: Once one setting of the model is known, on the same number of threads.
        other: Likewise on another number of threads.
    """

    plain: tuple[float, float] = (-0.5, 0.5)
    settled: tuple[float, float] = (-0.3, 0.3)
    other: tuple[float, float] = (-0.4, 0.4)


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted predictor.

    Attributes:
        laws: Coefficients of terms, in microseconds, by class and unit; the class ``any FAMILY``
            stands in for those never measured.
        per_run_s: By unit, what a run costs besides its operators.
        per_operator_s: By unit, what each operator costs besides its timed kernel; below 0
            where timing costs more.
        batches: The batch sizes that were measured.
        tails: Of the run time over its median, by quantile.
        errors: Of models that were left out, by unit and whether runs are short.
    """

    laws: Mapping[tuple[str, Unit], Array]
    per_run_s: Mapping[Unit, float]
    per_operator_s: Mapping[Unit, float]
    batches: tuple[int, ...] = ()
    tails: Mapping[float, float] = field(default_factory=dict)
    errors: Mapping[tuple[Unit, bool], Errors] = field(default_factory=dict)

    @property
    def units(self) -> list[Unit]:
        """What is known at all."""
        return sorted(self.per_run_s)

    def seconds(
        self, kind: str, family: str, unit: Unit, sizes: Array, cold: Array
    ) -> Array | None:
        """What operators of one class take; None if neither it nor its family was measured.

        Args:
            kind: The class.
            family: Of the class.
            unit: What they run on.
            sizes: Operators by sizes.
            cold: As for `terms`.
        """
        law = self._law(kind, family, unit)
        if law is None:
            return None
        matrix = terms(family, sizes, cold, unit.threads)
        found = matrix @ law
        alone = self._law(kind, family, unit, ALONE)
        if alone is not None and unit.threads > 1:
            found = np.where(shared(family, sizes), found, matrix @ alone)
        seconds: Array = np.maximum(found, 0.0) / _US_PER_S
        return seconds

    def run_s(self, unit: Unit, kernels_s: float, operators: float) -> float:
        """A run of so many operators; it takes what a run of none does at least."""
        besides_s = self.per_run_s[unit] + self.per_operator_s[unit] * operators
        return max(kernels_s + besides_s, self.per_run_s[unit], _LEAST_S)

    def errors_of(self, unit: Unit, run_s: float) -> Errors:
        """How wrong a prediction of so many seconds may be."""
        return self.errors.get((unit, is_short(run_s)), Errors())

    def _law(self, kind: str, family: str, unit: Unit, how: str = "") -> Array | None:
        found = self.laws.get((kind + how, unit))
        return self.laws.get((f"any {family}{how}", unit)) if found is None else found


def is_short(run_s: float) -> bool:
    """Whether a run is so short that what it costs besides its operators counts."""
    return run_s < _SHORT_S


def cold_share(traffic_bytes: float) -> float:
    """How much of its weights a model finds no longer in a cache, by what a run moves."""
    return min(1.0, max(0.0, (traffic_bytes - _CACHE_BYTES) / (_ALL_COLD_BYTES - _CACHE_BYTES)))
