"""The instance sizes that a function's model knows, and their execution times."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from carpool.variants.variant_set import VariantSet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from carpool.latency import LatencyModel, Resources
    from scaler.scenarios.scenario import App, Function

__all__ = ["exec_times", "quickest_s", "sizes"]


def quickest_s(function: Function) -> float:
    """Return the shortest latency of a request on any instance size; infinity if none fits."""
    return min(
        [
            exec_s
            for app in function.apps
            for model, _, cpu, gpu, largest in sizes(function, app)
            for _, exec_s in exec_times(model, cpu, gpu, largest)
        ],
        default=math.inf,
    )


def sizes(
    function: Function, app: App
) -> Iterator[tuple[LatencyModel, Resources, float, float, int]]:
    """Yield every instance size with the largest batch it accepts."""
    for model in _models(function.model, app.accuracy):
        largest: dict[tuple[float, float], int] = {}
        for batch, cpu, gpu in model.configurations(function.max_batch):
            largest[cpu, gpu] = max(batch, largest.get((cpu, gpu), 0))
        for (cpu, gpu), batch in largest.items():
            yield model, model.resources(batch, cpu, gpu), cpu, gpu, batch


def _models(model: LatencyModel, accuracy: float) -> list[LatencyModel]:
    if not isinstance(model, VariantSet):
        return [model]
    accurate = [each.name for each in model.variants if each.accuracy >= accuracy]
    return [variant for name in accurate if (variant := model.of(name)) is not None]


def exec_times(
    model: LatencyModel, cpu: float, gpu: float, largest: int
) -> Iterator[tuple[int, float]]:
    """Yield the median execution time of each batch up to the largest, where the model knows it."""
    for batch in range(1, largest + 1):
        exec_s = model.predict(batch, cpu, gpu, 0.5)
        if exec_s is not None:
            yield batch, exec_s
