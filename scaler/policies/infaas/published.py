"""INFaaS's heuristic as printed (ATC'21, section 4.2): replicate or upgrade, and scale down.

Every second a worker whose headroom is below the slack compares what more instances of the
variants that run would cost with what a variant of higher throughput would; at intervals it checks
whether one instance less, or a cheaper variant, would do. The public code leaves the cost out of
the decision; here it is as in the paper.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from scaler.policies.infaas.greedy import lack, need_by_need, settled

if TYPE_CHECKING:
    from scaler.policies.infaas.task import Counts, Solution, Task

__all__ = ["SLACK", "Addition", "additions", "headroom", "published"]

SLACK = 1.05  # headroom below which an application gets more

_ROUNDING = 1e-9


class Addition(NamedTuple):
    """So many more instances of an option, and what they cost, loading included."""

    cost: float
    option: int
    more: int


def headroom(task: Task, counts: Counts, load_rps: float) -> float:
    """What instances can take, by what comes."""
    saturation = sum(o.rate_rps * n for o, n in zip(task.options, counts, strict=True))
    return saturation / load_rps if load_rps else math.inf


def additions(task: Task) -> list[Addition]:
    """The ways to cover one need: to replicate what runs for it, or to upgrade; cheapest first.

    Where nothing runs for it, any option will do.
    """
    worth, lacking = task.needs[0].worth, lack(task, task.running)
    usable = [number for number, each in enumerate(worth) if each]
    fastest = max([worth[o] for o in usable if task.running[o]], default=0.0)
    found = []
    for number in usable:
        if lacking and (task.running[number] or worth[number] > fastest):
            option, count = task.options[number], math.ceil(lacking / worth[number] - _ROUNDING)
            cost = count * option.cost * (1 + task.loading * option.load_s)
            found.append(Addition(cost, number, count))
    return sorted(found)


def published(task: Task) -> Solution:
    """One round: for each need the cheapest addition that there is room for, or scaling down."""
    return need_by_need(task, _step)


def _step(task: Task) -> Counts:
    if not lack(task, task.running):
        return settled(task, task.running)
    for _, option, more in additions(task):
        counts = tuple(n + more * (o == option) for o, n in enumerate(task.running))
        if task.fits(counts):
            return counts
    return task.running if task.fits(task.running) else settled(task, task.running)
