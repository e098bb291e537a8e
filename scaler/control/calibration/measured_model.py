"""Builds a latency model from what fronts have measured, for functions without a configured model.

Fronts learn a line of execution times by batch size for each class of instances. Sizes of instance
are taken from the function's own settings, as a line does not tell how times change with cores. The
model stays the same object while the line changes little, because planners cache by its identity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.latency.linear import Linear

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.latency import LatencyModel

__all__ = ["MeasuredModel"]

_MOVED = 0.15
_LEAST_S = 1e-5
_LOADED_S = 1.0


class MeasuredModel:
    """Latency model of one function, built from measurements.

    Args:
        cpu: Cores of an instance.
        gpu: Percent of a GPU of an instance.
    """

    def __init__(self, cpu: float, gpu: float = 0.0) -> None:
        self._cpu = cpu
        self._gpu = gpu
        self._model: Linear | None = None

    def model(
        self,
        lines: Mapping[str, tuple[float, float]],
        batches: Mapping[str, int],
        load_s: float,
    ) -> LatencyModel | None:
        """Return the model of the class that has executed the most batches; None if unknown.

        Args:
            lines: Base and per-item seconds by class.
            batches: Number of executed batches by class.
            load_s: Seconds that an instance takes to load.
        """
        if not lines:
            return None
        name = max(lines, key=lambda name: (batches.get(name, 0), name))
        base_s, per_item_s = (round(max(seconds, _LEAST_S), 6) for seconds in lines[name])
        fitted = Linear(base_s, per_item_s, self._cpu, self._gpu, load_s)
        if self._model is None or _differ(self._model, fitted):
            self._model = fitted
        return self._model


def _differ(one: Linear, other: Linear) -> bool:
    """Return whether execution times at some batch size, or loading times, differ noticeably."""
    for batch in (1, 8, 64):
        was_s, is_s = one.base_s + one.per_item_s * batch, other.base_s + other.per_item_s * batch
        if abs(is_s - was_s) > _MOVED * was_s:
            return True
    return abs(one.load_s - other.load_s) > _LOADED_S
