"""A latency model corrected by measured execution times, and its remaining error.

A model was measured elsewhere, or predicted; the batches of a running function show how long they
take here, including the network between sidecar and handler, and slower machines. Measured seconds
are modelled as ``factor`` times the model's plus a base. Both are fitted to the latest reports by
relative least squares, with less weight for large errors (Huber 1964), and drawn towards the
previous values. Both are bounded: a larger deviation is no correction but a different model, and
raises an alarm.

Plans have to allow for the error that remains. Nothing here depends on policies or sidecars.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from carpool.latency import LatencyModel
    from carpool.latency.model import Configuration, Resources

__all__ = ["MOST_BASE_S", "MOST_FACTOR", "CorrectedModel", "Correction"]

MOST_FACTOR, MOST_BASE_S = 3.0, 0.02
_KEPT, _LEAST = 64, 8  # number of reports that are kept, and that are needed for a correction
_MOST_WEIGHT = 16  # highest weight of a report, which is its number of batches
_ABSURD = 1000.0  # limit of the ratio of measured to predicted times, and of its inverse
_ROUNDS, _FAR_OFF = 3, 0.25  # rounds of fitting; relative error beyond which a report counts less
_QUANTILE = 0.95  # quantile of the errors that counts as the error
_STEPS = (
    0.02,
    0.05,
    0.1,
    0.15,
    0.2,
    0.3,
    0.5,
    1.0,
)  # errors are rounded up to these, so that plans do not change with every report
_EXACT = 1e-6  # relative error that counts as 0
_CALMER = 1.25  # an error is lowered a step only if it would be even if multiplied by this
_MOVED = 0.05  # smallest relative change of a correction that has an effect
_ALARM, _CALM = 1.5, 1.3  # ratios of measured to predicted time that raise and clear the alarm
_NETWORK_S = 0.002  # differences up to this are attributed to the network
_TOLD_AGAIN = 0.25  # smallest relative change that is reported again
_NOTHING = (1.0, 0.0)  # factor and base


@dataclass(frozen=True, slots=True)
class CorrectedModel:
    """A model whose batches take ``factor`` times as long, plus ``base_s``.

    Attributes:
        model: The uncorrected model.
        factor: From 1 / `MOST_FACTOR` to `MOST_FACTOR`.
        base_s: From 0 to `MOST_BASE_S`.
    """

    model: LatencyModel
    factor: float
    base_s: float

    @property
    def load_s(self) -> float:
        """As `LatencyModel.load_s`."""
        return self.model.load_s

    def predict(self, batch: int, cpu: float, gpu: float, quantile: float = 0.5) -> float | None:
        """As `LatencyModel.predict`."""
        plain_s = self.model.predict(batch, cpu, gpu, quantile)
        return None if plain_s is None else self.factor * plain_s + self.base_s

    def resources(self, batch: int, cpu: float, gpu: float) -> Resources:
        """As `LatencyModel.resources`."""
        return self.model.resources(batch, cpu, gpu)

    def configurations(self, max_batch: int) -> Iterator[Configuration]:
        """As `LatencyModel.configurations`."""
        return self.model.configurations(max_batch)


class _Seen(NamedTuple):
    """Predicted and measured mean execution time of the batches of one report."""

    predicted_s: float
    measured_s: float
    weight: float


class Correction:
    """Correction of one function's latency model.

    Attributes:
        factor, base_s: As in `CorrectedModel`.
        error: Relative error by which batches may exceed the corrected model; None if unknown.
    """

    def __init__(self) -> None:
        self.factor, self.base_s = self._prior = _NOTHING
        self.error: float | None = None
        self._seen: deque[_Seen] = deque(maxlen=_KEPT)
        self._plain: LatencyModel | None = None
        self._model: LatencyModel | None = None
        self._fresh = False
        self._off = 0
        self._news = self._alarm = ""
        self._heard = self._told = 1.0

    def observe(
        self,
        model: LatencyModel,
        size: tuple[float, float],
        batches: int,
        item_count: int,
        exec_s: float,
    ) -> None:
        """Record executed batches.

        Args:
            model: The uncorrected model that the function is planned with; another one starts over.
            size: Cores of the instance, and percent of a GPU.
            batches: Number of batches.
            item_count: Total number of items.
            exec_s: Total execution time, in seconds.
        """
        self._begin(model)
        if batches < 1 or not (0 < exec_s < math.inf and item_count >= batches):
            return
        predicted_s = _mean_s(model, item_count / batches, *size)
        if predicted_s is None or not 0 < predicted_s < math.inf:
            return
        measured_s = exec_s / batches
        if size[0] < 1:  # with a quota, light load does not show times under full load
            measured_s = max(measured_s, predicted_s)
        measured_s = min(predicted_s * _ABSURD, max(predicted_s / _ABSURD, measured_s))
        self._seen.append(_Seen(predicted_s, measured_s, min(batches, _MOST_WEIGHT)))
        # A report that agrees with all predictions so far changes nothing.
        off = abs(self._at(predicted_s) / measured_s - 1) > _EXACT
        self._off = _KEPT if off else max(0, self._off - 1)
        self._fresh = self._fresh or self.error is None or self._off > 0

    def of(self, model: LatencyModel) -> LatencyModel:
        """Return the corrected model; the same object while the correction hardly changes."""
        self._begin(model)
        if self._fresh and len(self._seen) >= _LEAST:
            self._fit()
        if self._model is None or self._moved(self._model):
            self._model = CorrectedModel(model, self.factor, self.base_s)
            if abs(self._times() / self._heard - 1) > _TOLD_AGAIN:
                self._heard = self._times()
                self._news = f"Measured: {self._described(self._heard)}."
        return self._model

    def news(self) -> str:
        """Return a sentence on what has changed since the last call; empty if nothing has."""
        news, self._news = self._news, ""
        return news

    def alarm(self) -> str:
        """Return the alarm that batches take longer than the model predicts; empty if none."""
        return self._alarm

    def to_dict(self) -> list[float]:
        """Return the state that must survive a restart."""
        return [round(self.factor, 3), round(self.base_s, 5)]

    def absorb(self, data: Sequence[float]) -> None:
        """Continue from the result of `to_dict`, which later measurements outweigh."""
        factor, base_s = data
        self.factor, self.base_s = self._prior = _bounded(factor, base_s)

    def _begin(self, model: LatencyModel) -> None:
        """Start over if the model is a different one, as its correction is unrelated."""
        if model is self._plain:
            return
        if self._plain is not None:
            self.factor, self.base_s = self._prior = _NOTHING
            self._seen.clear()
            self._off = 0
        known = (self.factor, self.base_s) != _NOTHING
        self.error, self._alarm = None, ""
        self._plain, self._model = model, None if known else model

    def _fit(self) -> None:
        weights = [seen.weight for seen in self._seen]
        for _ in range(_ROUNDS):
            self.factor, self.base_s = _fitted(self._seen, weights, self._prior)
            errors = [abs(self._at(s.predicted_s) / s.measured_s - 1) for s in self._seen]
            weights = [
                seen.weight * min(1.0, _FAR_OFF / max(error, _FAR_OFF))
                for seen, error in zip(self._seen, errors, strict=True)
            ]
        beyond = [(s.measured_s / self._at(s.predicted_s) - 1, s.weight) for s in self._seen]
        error = _quantile(beyond)
        if self.error is None or error > self.error or _step(error * _CALMER) < self.error:
            self.error = _step(error)
        self._fresh = False
        self._watch()

    def _watch(self) -> None:
        """Raise, renew or clear the alarm. Batches faster than predicted raise none."""
        times = self._times()
        beyond = self.base_s >= MOST_BASE_S or self.factor >= MOST_FACTOR
        if not beyond and times <= (_CALM if self._alarm else _ALARM):
            self._alarm = ""
        elif not self._alarm or abs(times / self._told - 1) > _TOLD_AGAIN:
            self._told = times
            more = "more than can be corrected" if beyond else "plans follow"
            self._alarm = f"{self._described(times)}; {more}: measure its latency model again"

    def _times(self) -> float:
        """Return how many times longer than the model's prediction the largest batches take."""
        if not self._seen:
            return self.factor
        predicted_s = max(self._seen).predicted_s
        corrected_s = self._at(predicted_s)
        return 1.0 if abs(corrected_s - predicted_s) < _NETWORK_S else corrected_s / predicted_s

    @staticmethod
    def _described(times: float) -> str:
        return f"batches take {times:.1f} times what its latency model says"

    def _at(self, predicted_s: float) -> float:
        return self.factor * predicted_s + self.base_s

    def _moved(self, model: LatencyModel) -> bool:
        """Return whether the correction now differs from that of ``model`` at observed batches."""
        factor, base_s = 1.0, 0.0
        if isinstance(model, CorrectedModel):
            factor, base_s = model.factor, model.base_s
        ends = (min(self._seen), max(self._seen)) if self._seen else ()
        return any(
            abs(self._at(seen.predicted_s) / (factor * seen.predicted_s + base_s) - 1) > _MOVED
            for seen in ends
        )


def _mean_s(model: LatencyModel, item_count: float, cpu: float, gpu: float) -> float | None:
    """Interpolate the execution time between the two batch sizes around a mean."""
    low = int(item_count)
    low_s = model.predict(low, cpu, gpu)
    high_s = model.predict(low + 1, cpu, gpu) if item_count > low else low_s
    if low_s is None or high_s is None:
        return low_s if item_count == low else None
    return low_s + (high_s - low_s) * (item_count - low)


def _bounded(factor: float, base_s: float) -> tuple[float, float]:
    return min(MOST_FACTOR, max(1 / MOST_FACTOR, factor)), min(MOST_BASE_S, max(0.0, base_s))


def _fitted(
    seen: Sequence[_Seen] | deque[_Seen], weights: Sequence[float], prior: tuple[float, float]
) -> tuple[float, float]:
    """Minimize squared (factor * predicted + base) / measured - 1; the prior counts as a report."""
    total = sum(weights)
    middle_s = sum(w * s.measured_s for w, s in zip(weights, seen, strict=True)) / total
    draw = total / len(weights)
    ff, bb = draw, draw / middle_s**2
    fb, f1, b1 = 0.0, draw * prior[0], draw * prior[1] / middle_s**2
    for weight, (predicted_s, measured_s, _) in zip(weights, seen, strict=True):
        factor, base = predicted_s / measured_s, 1 / measured_s
        ff += weight * factor * factor
        fb += weight * factor * base
        bb += weight * base * base
        f1 += weight * factor
        b1 += weight * base
    base_s = _bounded(1.0, (b1 * ff - f1 * fb) / (ff * bb - fb * fb))[1]
    factor = _bounded((f1 - fb * base_s) / ff, base_s)[0]
    return _bounded(factor, (b1 - fb * factor) / bb)


def _quantile(errors: Sequence[tuple[float, float]]) -> float:
    """Return the weighted ``_QUANTILE`` quantile of the errors."""
    ordered = sorted(errors)
    left = _QUANTILE * sum(weight for _, weight in ordered)
    for error, weight in ordered:
        left -= weight
        if left <= 0:
            return error
    return ordered[-1][0]


def _step(error: float) -> float:
    return next((step for step in _STEPS if error <= step), _STEPS[-1])
