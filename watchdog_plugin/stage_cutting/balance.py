"""Chooses k - 1 points to cut at, among those that are narrow. Pure.

A request that arrives while stages of t_1 .. t_k seconds are executed waits for the end of the one
that runs, sum(t_i^2) / (2 * sum(t_i)) on average; a cut costs the seconds in which its tensors
are handed over. The sum of both is made as small as k stages allow. So equal stages are best where
cuts are free, and a wide point is passed by for a narrower one nearby.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Point", "choose"]


class Point(NamedTuple):
    """A place where the graph can be cut.

    Attributes:
        after: how many nodes come before it.
        at_s: when execution gets there.
        handover_s: what handing its tensors over takes.
    """

    after: int
    at_s: float
    handover_s: float


def choose(points: Sequence[Point], total_s: float, stages: int) -> list[Point]:
    """The best points for so many stages, in order; fewer where there are not enough.

    Args:
        points: in order of execution.
        total_s: how long the whole graph takes.
        stages: how many there shall be.
    """
    if total_s <= 0:
        return []
    cuts = min(stages - 1, len(points))
    # best[j]: least cost of execution up to point j, which is a cut, and the cuts before it.
    best: list[tuple[float, tuple[int, ...]]] = [
        (_wait_s(point.at_s, total_s) + point.handover_s, (index,))
        for index, point in enumerate(points)
    ]
    for cut in range(1, cuts):
        best = [
            min(
                (
                    (
                        cost
                        + _wait_s(point.at_s - points[chosen[-1]].at_s, total_s)
                        + point.handover_s,
                        (*chosen, index),
                    )
                    for cost, chosen in best[:index]
                    if len(chosen) == cut
                ),
                default=(math.inf, ()),
            )
            for index, point in enumerate(points)
        ]
    ends = [
        (cost + _wait_s(total_s - points[chosen[-1]].at_s, total_s), chosen)
        for cost, chosen in best
        if chosen
    ]
    return [points[index] for index in min(ends)[1]] if cuts > 0 and ends else []


def _wait_s(stage_s: float, total_s: float) -> float:
    """What a stage adds to the mean wait for the end of the running one."""
    return stage_s * stage_s / (2 * total_s)
