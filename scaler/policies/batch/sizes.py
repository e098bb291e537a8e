"""The instance sizes that a latency model knows, with the execution times of all batches on each.

A model answers for one batch size and one quantile at a time; the law of batches needs all sizes,
and times that represent all quantiles.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from scaler.policies.batch.batch_law import Service

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from carpool.arrivals.processes import Times
    from carpool.scaling import LatencyModel, Resources

__all__ = ["InstanceSize", "instance_sizes"]

_EDGES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 1.0)  # shares of batches


class InstanceSize(NamedTuple):
    """An instance size.

    Attributes:
        cpu, gpu: Cores and percent of a GPU, as in the model.
        service: Execution times of batches of 1, 2 and so on; sizes that the model does not know
            take as long as the next larger one.
        known: Which sizes a full batch may have, shape (sizes,).
        resources: What an instance occupies, by size of a full batch.
    """

    cpu: float
    gpu: float
    service: Service
    known: npt.NDArray[np.bool_]
    resources: tuple[Resources, ...]


def instance_sizes(
    model: LatencyModel, max_batch: int, percentile: float
) -> tuple[InstanceSize, ...]:
    """Return every instance size that the model knows, with all its batches.

    Args:
        model: Latency model of the function.
        max_batch: Largest batch size to ask for.
        percentile: Share of batches at which the times must be exact.
    """
    batches: dict[tuple[float, float], list[int]] = {}
    for batch, cpu, gpu in model.configurations(max_batch):
        if cpu > 0:
            batches.setdefault((cpu, gpu), []).append(batch)
    shares = _points(percentile)
    return tuple(
        _instance_size(model, *size, sorted(known), shares) for size, known in batches.items()
    )


def _points(percentile: float) -> tuple[list[float], Times]:
    """Return the quantiles at which to ask for a batch's time, and the weight of each."""
    edges = sorted({*_EDGES, percentile})
    middles = [(low + high) / 2 for low, high in itertools.pairwise(edges)]
    return middles, np.diff(edges)


def _instance_size(
    model: LatencyModel,
    cpu: float,
    gpu: float,
    batches: list[int],
    shares: tuple[list[float], Times],
) -> InstanceSize:
    points, weights = shares
    if model.predict(batches[-1], cpu, gpu, points[0]) == model.predict(
        batches[-1], cpu, gpu, points[-1]
    ):
        points, weights = [0.5], np.ones(1)
    rows = {batch: [model.predict(batch, cpu, gpu, at) for at in points] for batch in batches}
    seconds, resources = [], []
    for size in _padded(batches):
        seconds.append([math.inf if at is None else at for at in rows[size]])
        resources.append(model.resources(size, cpu, gpu))
    known = np.isin(np.arange(1, batches[-1] + 1), batches)
    return InstanceSize(cpu, gpu, Service(np.array(seconds), weights), known, tuple(resources))


def _padded(batches: list[int]) -> Iterator[int]:
    """Yield, for each size from 1 to the largest, the next known size that is not smaller."""
    known = iter(batches)
    upper = next(known)
    for size in range(1, batches[-1] + 1):
        while upper < size:
            upper = next(known)
        yield upper
