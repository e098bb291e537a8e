"""A fit learned from profiles: coefficients for seconds by sizes, run overheads, and errors.

Each class of operators has coefficients of its own for each number of threads and share of a GPU,
and for several threads a second set for operators that run on one thread only. `regression` learns
them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from carpool.predictor.roofline_terms import terms
from carpool.predictor.thread_scaling import shared

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from carpool.predictor.profile import Overhead

    Array = NDArray[np.float64]

__all__ = ["ALONE", "Bounds", "Carried", "Errors", "Fit", "ThreadsAndGpu", "cold_share", "regime"]

Bounds = tuple[float, float]

ALONE = ", alone"  # suffix of a class, for its operators that threads do not share
_US_PER_S = 1e6
_LEAST_S = 1e-6
_REGIMES_S = (1e-3, 1e-2)
_CACHE_BYTES, _ALL_COLD_BYTES = 8e6, 32e6


class ThreadsAndGpu(NamedTuple):
    """Resources that operators run on.

    Attributes:
        threads: Threads of the runtime.
        gpu: Percent of one GPU.
    """

    threads: int
    gpu: float = 0.0


class Carried(NamedTuple):
    """What one measured run of a model says about another run of it.

    Attributes:
        share: Share of the measured run's log(measured / predicted) that applies to the other run.
        bounds: 90 % interval of the other run's remaining error after that share is subtracted.
    """

    share: float
    bounds: Bounds


class Errors(NamedTuple):
    """Errors of predicted runs, as log(measured / predicted).

    Attributes:
        plain: 90 % interval for a model that was never measured.
        settled: What a run on the same threads says about a run whose batch size differs by 0, 1,
            2 and more doublings; entry 0 is about itself.
        other: The same for a run on another number of threads.
    """

    plain: Bounds = (-0.5, 0.5)
    settled: tuple[Carried, ...] = (Carried(1.0, (-0.3, 0.3)),)
    other: tuple[Carried, ...] = (Carried(1.0, (-0.4, 0.4)),)

    def excess(self, error: float) -> float:
        """Return the part of an error outside ``plain``, which the machine causes in every run."""
        return error - min(max(error, self.plain[0]), self.plain[1])

    def carried(self, doublings: float, *, same: bool) -> Carried:
        """Return what a run says about one whose batch size differs by ``doublings``."""
        known = self.settled if same else self.other
        low = min(int(doublings), len(known) - 1)
        high = min(low + 1, len(known) - 1)
        part = min(1.0, doublings - low)
        (one, lows), (two, highs) = known[low], known[high]
        numbers = zip((one, *lows), (two, *highs), strict=True)
        share, least, most = [a * (1 - part) + b * part for a, b in numbers]
        return Carried(share, (least, most))


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted predictor.

    Attributes:
        laws: Coefficients of terms, in microseconds, by class and unit; the class ``any FAMILY``
            is the fallback for classes that were never measured.
        per_run_s: Overhead of a run besides its operators, by unit.
        per_operator_s: Overhead of each operator besides its timed kernel, by unit; negative
            where timing costs more.
        batches: The batch sizes that were measured.
        tails: Ratios of run time to its median, by quantile.
        errors: Errors of models that were left out, by unit and regime.
    """

    laws: Mapping[tuple[str, ThreadsAndGpu], Array]
    per_run_s: Mapping[ThreadsAndGpu, float]
    per_operator_s: Mapping[ThreadsAndGpu, float]
    batches: tuple[int, ...] = ()
    tails: Mapping[float, float] = field(default_factory=dict)
    errors: Mapping[tuple[ThreadsAndGpu, int], Errors] = field(default_factory=dict)

    @property
    def units(self) -> list[ThreadsAndGpu]:
        """Units that the fit covers, sorted."""
        return sorted(self.per_run_s)

    def on_machine(self, overheads: Mapping[int, Overhead], batches: Iterable[int] = ()) -> Fit:
        """Return the fit with the run overheads of a machine, and the batch sizes measured there.

        A number of threads without profiles gets the laws of the nearest one.
        """
        laws, per_run_s, per_operator_s = (
            dict(self.laws),
            dict(self.per_run_s),
            dict(self.per_operator_s),
        )
        for threads, overhead in overheads.items():
            unit = ThreadsAndGpu(threads)
            if unit not in per_run_s and self.per_run_s:
                nearest = min(
                    self.per_run_s, key=lambda known: (known.gpu, abs(known.threads - threads))
                )
                laws |= {
                    (operator_class, unit): law
                    for (operator_class, known), law in self.laws.items()
                    if known == nearest
                }
            per_run_s[unit], per_operator_s[unit] = overhead
        every = tuple(sorted({*self.batches, *batches}))
        return replace(
            self, laws=laws, per_run_s=per_run_s, per_operator_s=per_operator_s, batches=every
        )

    def with_laws_of(self, other: Fit) -> Fit:
        """Return the fit with laws of another fit added for classes that it lacks."""
        units = set(self.per_run_s)
        lent = {key: law for key, law in other.laws.items() if key[1] in units}
        return replace(self, laws=lent | dict(self.laws))

    def operator_seconds(
        self, operator_class: str, family: str, unit: ThreadsAndGpu, sizes: Array, cold: Array
    ) -> Array | None:
        """Return the seconds of operators of one class.

        None if neither the class nor its family was measured.

        Args:
            operator_class: The class.
            family: The family of the class.
            unit: The unit they run on.
            sizes: Array of operators by sizes.
            cold: As for `terms`.
        """
        parts = self.operator_parts(operator_class, family, unit, sizes, cold)
        if parts is None:
            return None
        seconds: Array = np.maximum(parts.sum(axis=1), 0.0) / _US_PER_S
        return seconds

    def operator_parts(
        self, operator_class: str, family: str, unit: ThreadsAndGpu, sizes: Array, cold: Array
    ) -> Array | None:
        """Return the times of `operator_seconds` by term, in microseconds, one row per operator."""
        law = self._law(operator_class, family, unit)
        if law is None:
            return None
        matrix = terms(family, sizes, cold, unit.threads)
        alone = self._law(operator_class, family, unit, ALONE)
        if alone is None or unit.threads == 1:
            return matrix * law
        with_others = shared(family, sizes)[:, None]
        parts: Array = matrix * np.where(with_others, law, alone)
        return parts

    def run_s(self, unit: ThreadsAndGpu, kernels_s: float, operators: float) -> float:
        """Return the seconds of a run, which are at least those of a run without operators."""
        besides_s = self.per_run_s[unit] + self.per_operator_s[unit] * operators
        return max(kernels_s + besides_s, self.per_run_s[unit], _LEAST_S)

    def errors_of(self, unit: ThreadsAndGpu, run_s: float) -> Errors:
        """Return the errors of a prediction of ``run_s`` seconds."""
        return self.errors.get((unit, regime(run_s)), Errors())

    def _law(
        self, operator_class: str, family: str, unit: ThreadsAndGpu, how: str = ""
    ) -> Array | None:
        law = self.laws.get((operator_class + how, unit))
        return self.laws.get((f"any {family}{how}", unit)) if law is None else law


def regime(run_s: float) -> int:
    """Return the number of the class of run times with similar prediction errors, shortest first.

    Below a millisecond the overhead of a run matters, up to ten milliseconds that of waking a
    thread.
    """
    return sum(run_s >= limit for limit in _REGIMES_S)


def cold_share(traffic_bytes: float) -> float:
    """Return the share of a model's weights not in cache, by the bytes that a run moves."""
    return min(1.0, max(0.0, (traffic_bytes - _CACHE_BYTES) / (_ALL_COLD_BYTES - _CACHE_BYTES)))
