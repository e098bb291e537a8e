"""A latency model from what the fronts have measured, for a function whose model nobody named.

Fronts learn a line of execution times by batch size for each class of instances. Its sizes are
those of the function's own setting: how times change with cores is not in a line. The model stays
the same object while the line moves little, because planners remember what they know by it.
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
    """The model of one function, as far as it is known.

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
        """The model by the class that has executed the most; None while nothing is known.

        Args:
            lines: Base and per-item seconds by class.
            batches: How many each class has executed.
            load_s: How long an instance loads.
        """
        if not lines:
            return None
        name = max(lines, key=lambda name: (batches.get(name, 0), name))
        base_s, per_item_s = (round(max(seconds, _LEAST_S), 6) for seconds in lines[name])
        found = Linear(base_s, per_item_s, self._cpu, self._gpu, load_s)
        if self._model is None or _differ(self._model, found):
            self._model = found
        return self._model


def _differ(one: Linear, other: Linear) -> bool:
    """Whether batches of one or of many take noticeably longer or shorter."""
    for batch in (1, 8, 64):
        was_s, is_s = one.base_s + one.per_item_s * batch, other.base_s + other.per_item_s * batch
        if abs(is_s - was_s) > _MOVED * was_s:
            return True
    return abs(one.load_s - other.load_s) > _LOADED_S
