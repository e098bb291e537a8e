"""Chooses k - 1 points to cut a graph at, preferring narrow ones; performs no I/O.

A request that arrives while stages of t_1 .. t_k seconds are executed waits for the end of the
running one, sum(t_i^2) / (2 * sum(t_i)) on average; a cut costs the seconds for handing over its
tensors. The sum of both is minimized for k stages. So equal stages are best if cuts are free, and a
narrow point is preferred to a wide one nearby. There are fewer stages than requested if one more
would shorten the wait by less than the duration of a runtime call.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["HANDOVER_S", "Point", "choose"]

HANDOVER_S = 30e-6  # time of one more call of the runtime


class Point(NamedTuple):
    """A place where the graph can be cut.

    Attributes:
        after: Number of nodes before it.
        at_s: Time at which execution reaches it.
        handover_s: Time for handing over its tensors.
    """

    after: int
    at_s: float
    handover_s: float


def choose(points: Sequence[Point], total_s: float, stages: int) -> list[Point]:
    """Return the best points for ``stages`` stages, in order; fewer if there are not enough.

    Args:
        points: Possible points, in order of execution.
        total_s: Execution time of the whole graph.
        stages: Requested number of stages.
    """
    if total_s <= 0:
        return []
    # best[j]: least cost of execution up to point j, which is a cut, and the cuts before it.
    best: list[tuple[float, tuple[int, ...]]] = [
        (_wait_s(point.at_s, total_s) + point.handover_s, (index,))
        for index, point in enumerate(points)
    ]
    chosen: list[tuple[int, ...]] = [()]
    for cut in range(1, min(stages, len(points) + 1)):
        ends = [
            (cost + _wait_s(total_s - points[before[-1]].at_s, total_s), before)
            for cost, before in best
            if before
        ]
        if not ends:
            break
        chosen.append(min(ends)[1])
        best = [
            _extended(points, index, best[:index], cut, total_s) for index in range(len(points))
        ]

    def cost(places: tuple[int, ...]) -> float:
        ends_s = [0.0, *(points[index].at_s for index in places), total_s]
        waits = sum(_wait_s(end - start, total_s) for start, end in pairwise(ends_s))
        return waits + len(places) * HANDOVER_S

    return [points[index] for index in min(chosen, key=cost)]


def _extended(
    points: Sequence[Point],
    index: int,
    best: Sequence[tuple[float, tuple[int, ...]]],
    cuts: int,
    total_s: float,
) -> tuple[float, tuple[int, ...]]:
    """Return the minimum cost up to a point with one cut more than before, and the cuts."""
    point = points[index]
    return min(
        (
            (
                cost + _wait_s(point.at_s - points[before[-1]].at_s, total_s) + point.handover_s,
                (*before, index),
            )
            for cost, before in best
            if len(before) == cuts
        ),
        default=(math.inf, ()),
    )


def _wait_s(stage_s: float, total_s: float) -> float:
    """Return how much a stage adds to the mean wait for the end of the running stage."""
    return stage_s * stage_s / (2 * total_s)
