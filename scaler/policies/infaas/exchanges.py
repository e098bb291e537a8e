"""Improves a choice of variants for several needs by sharing and exchanging instances.

Solving one need after the other (`greedy`) misses instances of one option that pay only for several
needs together. So some attempts start with such instances; and instances of a few options are
exchanged for another option that covers every need without them, as long as that is cheaper.
"""

from __future__ import annotations

import heapq
import math
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scaler.policies.infaas.task import Counts, Solution, Task

__all__ = ["added_cost", "exchanged", "plus", "shared_firsts"]

_ROUNDING = 1e-9
_MIXED = 8  # options that are tried: several of them replaced at once, or as a start
_TRIED = 16  # number of cheaper exchanges that are tried; nearly all of them succeed
_STEPS = 100  # maximum number of exchanges; they end without it too, as each lowers the cost


def exchanged(task: Task, solution: Solution) -> Solution:
    """Return the solution with instances exchanged for others, as long as that is cheaper."""
    if any(task.missing(solution)):
        return solution
    for _ in range(_STEPS):
        exchanges = heapq.nsmallest(_TRIED, _exchanges(task, solution.counts))
        solutions = (
            task.solution(counts, well=True) for _, counts in exchanges if task.fits(counts)
        )
        better = next((each for each in solutions if not any(task.missing(each))), None)
        if better is None:
            break
        solution = better
    return solution


def _exchanges(task: Task, counts: Counts) -> Iterator[tuple[float, Counts]]:
    """Yield cheaper ways to replace some instances, each with its cost."""
    cost = task.change_cost(counts)
    least = cost - _ROUNDING * abs(cost)
    some = [option for option, count in enumerate(counts) if count]
    gone = [{option: fewer} for option in some for fewer in {1, counts[option]}]
    gone += [{one: 1, two: 1} for one, two in combinations(some, 2)]
    for several in (2, 3):
        gone += [{o: counts[o] for o in chosen} for chosen in combinations(some[:_MIXED], several)]
    for fewer in gone:
        without = tuple(n - fewer.get(option, 0) for option, n in enumerate(counts))
        saved = task.change_cost(without)
        lacking = task.missing(task.solution(without))
        for come in range(len(counts)):
            more = _wanted(task, lacking, come)
            if more is not None and come not in fewer:
                tried = saved + added_cost(task, counts, come, more)
                if tried < least:
                    yield tried, plus(without, come, more)


def _wanted(task: Task, lacking: Sequence[float], option: int) -> int | None:
    """Return how many instances of an option cover all that is lacking; None if impossible."""
    time = 0.0
    for need, rate_rps in zip(task.needs, lacking, strict=True):
        if rate_rps:
            served_rps = need.served_rps[option]
            if not served_rps:
                return None
            time += rate_rps / served_rps
    return math.ceil(time - _ROUNDING)


def shared_firsts(task: Task) -> Iterator[tuple[int, int]]:
    """Yield options that suit several needs, with instances for all or all but the greatest."""
    times = {
        option: [need.rate_rps / w for need in task.needs if (w := need.served_rps[option])]
        for option in range(len(task.options))
    }
    shared = [option for option, of_needs in times.items() if len(of_needs) > 1]
    shared.sort(key=lambda o: sum(times[o]) * task.options[o].cost / len(times[o]))
    for option in shared[:_MIXED]:
        total, most = sum(times[option]), max(times[option])
        for count in {math.ceil(total - most - _ROUNDING), math.floor(total)} - {0}:
            if task.fits(plus((0,) * len(task.options), option, count)):
                yield option, count


def added_cost(task: Task, counts: Counts, option: int, more: int) -> float:
    """Return the additional cost of ``more`` instances of an option."""
    there = counts[option]
    return task.cost_of(option, there + more) - task.cost_of(option, there)


def plus(counts: Counts, option: int, more: int) -> Counts:
    """Return the counts with ``more`` instances of an option added."""
    return (*counts[:option], counts[option] + more, *counts[option + 1 :])
