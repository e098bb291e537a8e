"""Slack: the time left to the most urgent request once all of them have run.

Eq. 1: slack = SLA - (T_wait + SingleExec); Eq. 2, for N requests: SLA - (T_wait + the sum of their
SingleExec). T_wait is the time since arrival, for running requests as well, so SLA - T_wait is
the time to the deadline. New requests are admitted if no request's slack becomes negative, of any
model, as all share the device.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import TYPE_CHECKING

from carpool.lazy_batching.batch_table import Entry
from carpool.lazy_batching.completion import finishes

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from carpool.lazy_batching.job import Job
    from carpool.lazy_batching.rules import Rules

__all__ = ["admissible"]

_ROUNDING_S = 1e-9


def admissible(stack: Sequence[Entry], waiting: Sequence[Job], rules: Rules, now: float) -> int:
    """Return how many of the first of ``waiting``, of one model and key, make no request late."""
    if rules.estimate == "serial":
        return _serial(stack, waiting, rules, now)
    counted = {
        job
        for entry in stack
        for job in entry.jobs
        if job.deadline < math.inf and _counts(job, entry.node, rules, now)
    }
    counted.update(r for r in waiting if r.deadline < math.inf and _counts(r, 0, rules, now))
    if not counted or _in_time(stack, waiting, counted, now):
        return len(waiting)
    # No request ends sooner in a larger batch, so the count is found by bisection.
    return bisect_left(
        range(1, len(waiting)),
        True,  # noqa: FBT003  what is looked for: the first count that is too many
        key=lambda count: not _in_time(stack, waiting[:count], counted, now),
    )


def _serial(stack: Sequence[Entry], waiting: Sequence[Job], rules: Rules, now: float) -> int:
    single_s = [
        _single_s(job, entry.node if rules.remaining else 0)
        for entry in stack
        for job in entry.jobs
    ]
    total_s = sum(single_s)
    budget_s = min(
        (
            job.deadline - now
            for entry in stack
            for job in entry.jobs
            if _counts(job, entry.node, rules, now)
        ),
        default=math.inf,
    )
    for count, job in enumerate(waiting):
        total_s += _single_s(job, 0)
        if _counts(job, 0, rules, now):
            budget_s = min(budget_s, job.deadline - now)
        if budget_s - total_s < -_ROUNDING_S:
            return count
    return len(waiting)


def _in_time(
    stack: Sequence[Entry], jobs: Sequence[Job], counted: Collection[Job], now: float
) -> bool:
    joining = Entry(list(jobs), 0, sum(job.rows for job in jobs))
    return all(
        now + after_s <= job.deadline + _ROUNDING_S
        for job, after_s in finishes([*stack, joining])
        if job in counted
    )


def _counts(job: Job, node: int, rules: Rules, now: float) -> bool:
    """Return whether the slack of ``job`` counts: it is not lost, or lost requests count too."""
    if rules.lost == "block":
        return True
    return now + _single_s(job, node) <= job.deadline + _ROUNDING_S


def _single_s(job: Job, node: int) -> float:
    """Return SingleExec from ``node`` on, by Algorithm 1."""
    return job.program.seconds(node, job.left, min(job.rows, job.program.batch_max))
