"""INFaaS's heuristic as printed (ATC'21, section 4.2): replicate or upgrade, and scale down.

Every second a worker whose headroom is below the slack compares the cost of more instances of the
running variants with that of a variant of higher throughput; at intervals it checks whether one
instance less, or a cheaper variant, would suffice. The public code leaves the cost out of the
decision; here it is as in the paper.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from scaler.policies.infaas.greedy import lack, need_by_need, settled

if TYPE_CHECKING:
    from scaler.policies.infaas.task import Counts, Solution, Task

__all__ = ["SLACK", "Addition", "additions", "headroom", "published"]

SLACK = 1.05  # headroom below which an application gets more instances

_ROUNDING = 1e-9


class Addition(NamedTuple):
    """Additional instances of an option, and their cost, loading included."""

    cost: float
    option: int
    more: int


def headroom(task: Task, counts: Counts, load_rps: float) -> float:
    """Return the throughput of the instances, divided by the load."""
    saturation = sum(o.rate_rps * n for o, n in zip(task.options, counts, strict=True))
    return saturation / load_rps if load_rps else math.inf


def additions(task: Task) -> list[Addition]:
    """Return the ways to cover one need, by replicating or upgrading; cheapest first.

    If nothing runs for it, any option is allowed.
    """
    served_rps, lacking = task.needs[0].served_rps, lack(task, task.running)
    usable = [number for number, each in enumerate(served_rps) if each]
    fastest = max([served_rps[o] for o in usable if task.running[o]], default=0.0)
    candidates = []
    for number in usable:
        if lacking and (task.running[number] or served_rps[number] > fastest):
            option, count = (
                task.options[number],
                math.ceil(lacking / served_rps[number] - _ROUNDING),
            )
            cost = count * option.cost * (1 + task.loading * option.load_s)
            candidates.append(Addition(cost, number, count))
    return sorted(candidates)


def published(task: Task) -> Solution:
    """Run one round: for each need the cheapest addition that fits, or scaling down."""
    return need_by_need(task, _step)


def _step(task: Task) -> Counts:
    if not lack(task, task.running):
        return settled(task, task.running)
    for _, option, more in additions(task):
        counts = tuple(n + more * (o == option) for o, n in enumerate(task.running))
        if task.fits(counts):
            return counts
    return task.running if task.fits(task.running) else settled(task, task.running)
