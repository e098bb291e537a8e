"""Selects variants step by step: adds instances, then removes or replaces them if that is cheaper.

What a need lacks is covered by more instances of the cheapest option, loading included: INFaaS's
replicate or upgrade. Then instances that are not needed are removed, and cheaper ones replace
others, until the cost no longer falls: its downgrade. A first addition that looks cheap may lead to
an expensive result, so every option is tried as the first.

Of several needs the one with the fewest suitable options comes first, and spare capacity of its
instances serves the others. As the order can make a difference, it is tried in both directions, and
with instances for several needs to start with (`exchanges`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import permutations
from operator import ge, mul
from typing import TYPE_CHECKING

from scaler.policies.infaas.exchanges import added_cost, exchanged, plus, shared_firsts
from scaler.policies.infaas.task import Need, Solution

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scaler.policies.infaas.task import Counts, Option, Task

__all__ = ["greedy", "lack", "need_by_need", "settled"]

_ROUNDING = 1e-9
_PAIRED = 4  # number of options that are also tried in pairs
_SHARED = 2  # number of attempts that start with instances for several needs
_STEPS = 100  # maximum number of improvements; they end without it too, as each lowers the cost


def greedy(task: Task) -> Solution:
    """Return instances for all that is needed, or for as much of it as fits."""
    if len(task.needs) <= 1:
        return need_by_need(task, _cheapest)

    def merit(solution: Solution) -> tuple[float, float]:
        return sum(task.missing(solution)), task.change_cost(solution.counts)

    orders = (task.by_choice, task.by_choice[::-1])
    solutions = [need_by_need(task, _cheapest, order) for order in orders]
    quickly = partial(_cheapest, starting=_SHARED)
    others = (need_by_need(task, quickly, first=first) for first in shared_firsts(task))
    solutions += sorted(others, key=merit)[:_SHARED]
    return min([exchanged(task, solution) for solution in solutions], key=merit)


def need_by_need(
    task: Task,
    solve: Callable[[Task], Counts],
    order: Sequence[int] | None = None,
    first: tuple[int, int] = (0, 0),
) -> Solution:
    """Solve for each need with the spare capacity of those before it.

    Args:
        task: The whole task.
        solve: Returns the instances for a task with one need.
        order: Order of the needs; None: the one with the fewest options first.
        first: An option, and the number of its instances to start with.
    """
    counts = [0] * len(task.options)
    left = [0.0] * len(task.options)
    counts[first[0]] = first[1]
    left[first[0]] = float(first[1])
    shares: list[list[float]] = [[]] * len(task.needs)
    for number in task.by_choice if order is None else order:
        need = task.needs[number]
        spare_rps = sum(map(mul, left, need.served_rps))
        lacking = Need(need.lacking(spare_rps), need.served_rps)
        for option, more in enumerate(solve(_rest(task, counts, lacking))):
            counts[option] += more
            left[option] += more
        shares[number] = task.taken(need, left)
    return Solution(tuple(counts), shares)


def _rest(task: Task, counts: list[int], need: Need) -> Task:
    """Return a task with one need, given the instances decided on so far."""
    pairs = list(zip(task.options, counts, strict=True))
    cores = task.capacity[0] - sum([option.cpu * count for option, count in pairs])
    gpu = task.capacity[1] - sum([option.gpu * count for option, count in pairs])
    running = [max(there - n, 0) for there, n in zip(task.running, counts, strict=True)]
    most = task.most - sum(counts)
    return replace(task, running=tuple(running), needs=(need,), capacity=(cores, gpu), most=most)


def _cheapest(task: Task, starting: float = math.inf) -> Counts:
    """Return the cheapest result for one need, from what runs or from nothing, by every option.

    Args:
        task: A task with one need.
        starting: Number of starting points to improve, the cheapest ones.
    """

    def merit(counts: Counts) -> tuple[float, float, Counts]:
        return lack(task, counts), task.change_cost(counts), counts

    if not task.needs[0].rate_rps:
        return (0,) * len(task.options)
    firsts = _firsts(task)
    pairs = [(first, first) for first in firsts] + list(permutations(firsts[:_PAIRED], 2))
    starts = {
        _covering(task, start, pair, firsts)
        for start in {_within(task, task.running), (0,) * len(task.options)}
        for pair in pairs
    }
    trimmed = {_trimmed(task, start) for start in starts}
    if starting < len(trimmed):
        trimmed = set(sorted(trimmed, key=merit)[: int(starting)])
    return min([settled(task, start, firsts) for start in trimmed], key=merit)


def settled(task: Task, counts: Counts, options: Sequence[int] | None = None) -> Counts:
    """Return the instances for one need, trimmed and replaced by cheaper ones.

    Args:
        task: A task with one need.
        counts: Instances decided on so far.
        options: Replacements to try; None: all that no other option dominates.
    """
    counts = _trimmed(task, counts)
    short, cost = lack(task, counts), task.change_cost(counts)
    tried_ones = _firsts(task) if options is None else options
    useful = [n for n in tried_ones if task.needs[0].served_rps[n]]
    for _ in range(_STEPS):
        replacements = sorted(_replaced(task, counts, useful, cost))
        better = next(
            (
                replacement
                for replacement in replacements
                if task.fits(replacement[1]) and lack(task, replacement[1]) <= short
            ),
            None,
        )
        if better is None:
            break
        cost, counts = better
    return counts


def lack(task: Task, counts: Counts) -> float:
    """Return the rate that the task's only need lacks."""
    (need,) = task.needs
    return need.lacking(sum(map(mul, counts, need.served_rps)))


def _firsts(task: Task) -> list[int]:
    """Return the options that no other dominates, those with the cheapest rate first."""
    all_rps = task.needs[0].served_rps
    merits = {n: _merits(task.options[n], rps) for n, rps in enumerate(all_rps) if rps}
    best = [
        other
        for other, its in merits.items()
        # Running instances need no loading. Of equal options, the first is better.
        if task.running[other]
        or not any(
            mine[0] >= its[0] and all(map(ge, mine, its)) and (one < other or mine != its)
            for one, mine in merits.items()
        )
    ] or [0]
    return sorted(best, key=lambda n: task.options[n].cost / (all_rps[n] or 1.0))


def _merits(option: Option, served_rps: float) -> tuple[float, ...]:
    """Return the merits of an option; one that is worse in all of them is never worth starting."""
    return served_rps, -option.cost, -option.cost * option.load_s, -option.cpu, -option.gpu


def _within(task: Task, counts: Counts) -> Counts:
    """Return as many of ``counts`` as are useful and fit."""
    kept = (0,) * len(counts)
    for option, count in enumerate(counts):
        if count and task.needs[0].served_rps[option]:
            kept = plus(kept, option, _fitting(task, kept, option, count))
    return kept


def _covering(task: Task, counts: Counts, firsts: tuple[int, int], others: Sequence[int]) -> Counts:
    """Return ``counts`` with their lack covered by the first option, and the rest by the second.

    If there is no capacity for those, the other options are used.
    """
    served_rps = task.needs[0].served_rps
    whole = math.floor if firsts[0] != firsts[1] else math.ceil
    lacking = lack(task, counts)
    for number, option in enumerate((*firsts, *others)):
        if not lacking:
            break
        if served_rps[option]:
            rounded = math.ceil if number else whole
            wanted = max(rounded(lacking / served_rps[option] - _ROUNDING), 0)
            counts = plus(counts, option, _fitting(task, counts, option, wanted))
            lacking = lack(task, counts)
    return counts


def _fitting(task: Task, counts: Counts, option: int, wanted: int) -> int:
    """Return how many more instances of an option fit, up to ``wanted``."""
    if not wanted or task.fits(plus(counts, option, wanted)):
        return wanted
    low, high = 0, wanted  # the first fits, the second does not
    while high - low > 1:
        middle = (low + high) // 2
        if task.fits(plus(counts, option, middle)):
            low = middle
        else:
            high = middle
    return low


def _trimmed(task: Task, counts: Counts) -> Counts:
    """Return the counts without instances that are not needed, most expensive removed first."""
    served_rps, kept = task.needs[0].served_rps, list(counts)
    spare = sum(map(mul, counts, served_rps)) - task.needs[0].rate_rps
    there = [option for option, count in enumerate(counts) if count]
    for option in sorted(there, key=lambda o: -task.options[o].cost):
        gone = kept[option]
        if served_rps[option]:
            gone = min(gone, max(math.floor(spare / served_rps[option] + _ROUNDING), 0))
            spare -= gone * served_rps[option]
        kept[option] -= gone
    return tuple(kept)


def _replaced(
    task: Task, counts: Counts, useful: list[int], cost: float
) -> Iterator[tuple[float, Counts]]:
    """Yield cheaper counts with one or all instances of an option replaced by another."""
    served_rps, least = task.needs[0].served_rps, cost - _ROUNDING * abs(cost)
    for gone, there in enumerate(counts):
        for fewer in {1, there} if there else ():
            without = plus(counts, gone, -fewer)
            lacking = lack(task, without)
            saved = cost - task.cost_of(gone, there) + task.cost_of(gone, there - fewer)
            for come in useful:
                if come != gone:
                    more = max(math.ceil(lacking / served_rps[come] - _ROUNDING), 0)
                    tried = saved + added_cost(task, counts, come, more)
                    if tried < least:
                        yield tried, plus(without, come, more)
