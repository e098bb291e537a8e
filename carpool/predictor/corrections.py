"""Ratios of measured to predicted time of a graph's operators, for any batch size.

Times from the target machine take precedence over times from another machine. Operators measured
only elsewhere are corrected by the level by which the two machines differ.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from carpool.onnx_graph.operator_graph import Case
    from carpool.predictor.fit import Fit, ThreadsAndGpu
    from carpool.predictor.operator_groups import Groups

    Array = NDArray[np.float64]
    Flags = NDArray[np.bool_]
    Times = Mapping[tuple[Case, ThreadsAndGpu], float]

__all__ = ["Corrections"]

_LEAST_S = 1e-7


class _OfUnit(NamedTuple):
    """Corrections on one unit: for each group an array of batch sizes by operators.

    Attributes:
        logs: Logarithms of measured over predicted time.
        here: Which of them were measured on the target machine.
        measured: Operators that were measured anywhere, at any batch size.
    """

    logs: Sequence[Array]
    here: Sequence[Flags]
    measured: Sequence[Flags]


class Corrections:
    """Corrections of predicted operator times of a graph by measured ones.

    Args:
        groups: The operators.
        fit: The fit that predicts them.
        elsewhere: Seconds measured on the machine of the fit; None if that is this machine.
        here: Seconds measured on the target machine.
        learnt: The fit before it was scaled to this machine.
    """

    def __init__(
        self, groups: Groups, fit: Fit, elsewhere: Times | None, here: Times, learnt: Fit
    ) -> None:
        self._groups, self._fit, self._learnt = groups, fit, learnt
        self._is_foreign = elsewhere is not None
        elsewhere = elsewhere or {}
        self._elsewhere, self._here = elsewhere, here
        self._batches = [batch for batch in fit.batches if groups.graph.admits(batch)]
        measured = {unit for _, unit in (*elsewhere, *here)}
        self._measured = measured & set(fit.units) if self._batches else set()
        self._units: dict[ThreadsAndGpu, _OfUnit] = {}

    def apply(self, seconds: list[Array], unit: ThreadsAndGpu, batch: int) -> list[Array]:
        """Return the seconds of each group's operators, corrected by measurements."""
        known = self._known(unit)
        if known is None:
            return seconds
        at = float(np.interp(math.log(batch), np.log(self._batches), range(len(self._batches))))
        low = min(int(at), max(0, len(self._batches) - 2))
        high = min(low + 1, len(self._batches) - 1)
        share = at - low
        return [
            each * np.exp(log[low] * (1 - share) + log[high] * share)
            for each, log in zip(seconds, known.logs, strict=True)
        ]

    def doublings(self, unit: ThreadsAndGpu, batch: int) -> list[Array]:
        """Return each operator's distance to the nearest batch size measured here, in doublings.

        Infinity if the operator was not measured here.
        """
        known = self._known(unit)
        if known is None:
            return [np.full(len(group.operators), math.inf) for group in self._groups.all]
        apart = np.abs(np.log2(self._batches) - math.log2(batch))[:, None]
        return [np.where(here, apart, math.inf).min(axis=0) for here in known.here]

    def measured(self, unit: ThreadsAndGpu) -> list[Flags]:
        """Return which operators of each group were measured anywhere."""
        known = self._known(unit)
        if known is None:
            return [np.zeros(len(group.operators), bool) for group in self._groups.all]
        return list(known.measured)

    @cached_property
    def _cases(self) -> list[list[list[Case]]]:
        """Each operator of each group at each measured batch size."""
        return [
            [[operator.at(batch) for operator in group.operators] for group in self._groups.all]
            for batch in self._batches
        ]

    def _known(self, unit: ThreadsAndGpu) -> _OfUnit | None:
        if unit in self._measured and unit not in self._units:
            self._units[unit] = self._of_unit(unit)
        return self._units.get(unit)

    def _of_unit(self, unit: ThreadsAndGpu) -> _OfUnit:
        predicted = [self._groups.seconds(self._fit, unit, batch) for batch in self._batches]
        expected = predicted
        if self._learnt is not self._fit:
            expected = [self._groups.seconds(self._learnt, unit, batch) for batch in self._batches]
        there = self._logs(unit, expected, self._elsewhere)
        own = self._logs(unit, predicted, self._here)
        level = self._level(predicted, there, own) if self._is_foreign else 0.0
        logs = [
            np.where(np.isnan(mine).all(axis=0), _filled(other) + level, _filled(mine))
            for other, mine in zip(there, own, strict=True)
        ]
        measured = [
            np.logical_not(np.isnan(mine).all(axis=0) & np.isnan(other).all(axis=0))
            for other, mine in zip(there, own, strict=True)
        ]
        return _OfUnit(logs, [np.isfinite(log) for log in own], measured)

    def _logs(
        self, unit: ThreadsAndGpu, predicted: Sequence[Sequence[Array]], times: Times
    ) -> list[Array]:
        if not times:
            shapes = [(len(predicted), len(group.operators)) for group in self._groups.all]
            return [np.full(shape, math.nan) for shape in shapes]
        logs = []
        for number in range(len(self._groups.all)):
            rows = []
            for cases, seconds in zip(self._cases, predicted, strict=True):
                measured = [times.get((case, unit), math.nan) for case in cases[number]]
                law = np.maximum(seconds[number], _LEAST_S)
                rows.append(np.log(np.maximum(measured, _LEAST_S) / law))
            logs.append(np.stack(rows))
        return logs

    def _level(
        self,
        predicted: Sequence[Sequence[Array]],
        there: Sequence[Array],
        own: Sequence[Array],
    ) -> float:
        """Return the logarithm of this machine's slowdown, from the operators measured on it."""
        off = spent = 0.0
        for number, group in enumerate(self._groups.all):
            weights = np.stack([seconds[number] for seconds in predicted]) * group.counts
            apart = own[number] - _filled(there[number])
            known = ~np.isnan(apart)
            off += float((apart[known] * weights[known]).sum())
            spent += float(weights[known].sum())
        return off / spent if spent else 0.0


def _filled(logs: Array) -> Array:
    """Interpolate unknown ratios between an operator's known batch sizes; 0 if none is known."""
    unknown = np.isnan(logs)
    filled = np.where(unknown.all(axis=0), 0.0, logs)
    for at in np.flatnonzero(np.isnan(filled).any(axis=0)):
        there = np.flatnonzero(~unknown[:, at])
        filled[:, at] = np.interp(range(len(logs)), there, logs[there, at])
    return filled
