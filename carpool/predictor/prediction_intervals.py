"""Widths of prediction intervals, by what was measured, how far away, and on which machine.

Bounds are of log(measured / predicted), and contain it with a probability of 90 %.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from carpool.predictor.fit import Bounds

    Array = NDArray[np.float64]

__all__ = [
    "CALIBRATED",
    "FOREIGN",
    "GUESSED",
    "LEVELLED",
    "MEASURED",
    "Part",
    "combined",
    "from_far",
    "measured",
    "scaling",
]

# Bounds if every operator was measured, on one thread and on several: the smallest and the largest
# mean error of the models with which the composition was chosen, on two processors (Intel Xeon and
# AMD EPYC: benchmarks/results/operators_unseen_first.md and operators_unseen_amd.md).
MEASURED: Mapping[int, Bounds] = {1: (-0.188, 0.195), 2: (-0.346, 0.242)}
FOREIGN = math.log(3)  # factor for another processor; less if some operators were measured here
LEVELLED = math.log(1.6)
# Added for laws of another processor that are scaled by a calibration: with it, the intervals
# contain at least nine tenths of the points of the models "chosen by" in
# benchmarks/results/operators_foreign.md.
CALIBRATED = math.log(1.25)
GUESSED = math.log(2)  # factor if a family's law replaces that of an unmeasured class
_PER_DOUBLING = 0.05  # for each doubling of the batch size from the nearest measured one
_MOST_DOUBLINGS = 4.0
_PER_FACTOR = 0.1  # share of log(this machine / the laws' machine), for scaled operators


class Part(NamedTuple):
    """Parts of a run's time, with the bounds of their errors.

    Attributes:
        seconds: Predicted seconds.
        low: Lower bounds.
        high: Upper bounds.
    """

    seconds: Array
    low: Array
    high: Array


def measured(threads: int) -> Bounds:
    """Return the bounds for runs of which every operator was measured."""
    return MEASURED[min(threads, max(MEASURED))]


def from_far(bounds: Bounds, doublings: Array) -> tuple[Array, Array]:
    """Return bounds for batches that are ``doublings`` away from measured ones."""
    more = _PER_DOUBLING * np.minimum(doublings, _MOST_DOUBLINGS)
    return bounds[0] - more, bounds[1] + more


def scaling(factors: Array) -> Array:
    """Return how much bounds widen for laws scaled by ``factors``."""
    widened: Array = _PER_FACTOR * np.abs(np.log(np.maximum(factors, 1e-9)))
    return widened


def combined(parts: Sequence[Part]) -> Bounds:
    """Return the bounds of a sum of parts whose errors are fully correlated."""
    total = sum(float(part.seconds.sum()) for part in parts)
    if total <= 0:
        return parts[0].low.min().item(), parts[0].high.max().item()
    low = sum(float(part.seconds @ np.exp(part.low)) for part in parts)
    high = sum(float(part.seconds @ np.exp(part.high)) for part in parts)
    return math.log(low / total), math.log(high / total)
