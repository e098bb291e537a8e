"""Whether joining a running batch pays, by the number of late requests and the sum of latencies.

Slack says whether joining makes a request late, not whether it helps. If a batch of two takes
twice as long as one, catching up only delays the running requests; and under load, a
request that runs behind shares a batch with all that will have arrived by then, so that catching up
takes time from them. So joining is compared with the outcome for all requests if the new ones ran
behind, in one batch with those others, or before them if one batch would save nothing.

Refusing every new request that makes another request late does not work either: it is then late
itself, as are those behind it. So late requests are counted in both cases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.lazy_batching.batch_table import Entry
from carpool.lazy_batching.completion import Finish, finishes
from carpool.lazy_batching.job import Job
from carpool.lazy_batching.program import RemainingRuns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.lazy_batching.program import Program

__all__ = ["best_size", "could_pay", "pays"]

_ROUNDING_S = 1e-9
_SAVES = 0.98  # largest relative time of a common batch that counts as saving, given the noise


def pays(
    stack: Sequence[Entry], jobs: Sequence[Job], rate_rps: float = 0.0, now: float = 0.0
) -> bool:
    """Return whether putting ``jobs`` on top is better than running them behind.

    It is if fewer requests are late, or as many, and the mean latency is not higher.

    Args:
        stack: Running batches, from the bottom to the top.
        jobs: New jobs, of one model and key.
        rate_rps: Arrival rate of further such requests, which share the batch behind.
        now: Time on the axis of the deadlines.
    """
    joining = Entry(list(jobs), 0, sum(job.rows for job in jobs))
    joined, before = finishes([*stack, joining]), finishes(stack)
    joined_s, before_s = ([after_s for _, after_s in each] for each in (joined, before))
    first, count, free_s = jobs[0], len(jobs), max(before_s)
    places = first.program.batch_max // first.rows - count
    others = max(0.0, min(rate_rps * free_s, places))  # that will have come by then
    alone_s, others_s = _batch_s(first, count), _batch_s(first, others) if others else 0.0
    together_s = _batch_s(first, count + others)
    if together_s < _SAVES * (alone_s + others_s):
        own_s = all_s = free_s + together_s
    else:  # they would come one after the other
        own_s, all_s = free_s + alone_s, free_s + alone_s + others_s
    behind = [*before, *(Finish(job, own_s) for job in jobs)]
    total_s = sum(joined_s) + others * (max(joined_s) + others_s)
    total_behind_s = sum(before_s) + count * own_s + others * all_s
    return (_late(joined, now), total_s) <= (_late(behind, now), total_behind_s)


def could_pay(program: Program) -> bool:
    """Return whether new requests should ever join a running batch, at a sustainable load.

    Args:
        program: Model of static nodes.
    """
    sizes = _sizes(program.batch_max)
    full_rps = program.batch_max / program.seconds(0, RemainingRuns(), program.batch_max)
    for running in sizes:
        for count in (size for size in sizes if size <= program.batch_max - running):
            jobs = [Job(number, program, 0.0) for number in range(running + count)]
            for node in range(1, len(program)):
                stack = [Entry(jobs[:running], node, running)]
                if any(pays(stack, jobs[running:], rate_rps) for rate_rps in (0.0, full_rps)):
                    return True
    return False


def best_size(waiting: Sequence[Job], largest: int, now: float) -> int:
    """Return how many of ``waiting`` an idle device should start with, from one to ``largest``.

    This is the size with the fewest avoidably late requests, and of several the largest, assuming
    that all requests are like the first and all batches of that size. A smaller batch would answer
    its own requests sooner and those behind it later: the mean latency of those waiting now may be
    lower, but throughput decreases, at the expense of all later requests.
    """
    first = waiting[0]
    alone_s = _batch_s(first, 1)
    budgets_s = [job.deadline - now + _ROUNDING_S for job in waiting]
    best, best_late = 1, len(waiting)
    for size in _sizes(largest):
        batch_s = _batch_s(first, size)
        ends_s = [batch_s * (place // size + 1) for place in range(len(waiting))]
        late = sum(alone_s <= own_s < end_s for own_s, end_s in zip(budgets_s, ends_s, strict=True))
        if late <= best_late:
            best, best_late = size, late
    return best


def _late(ends: Sequence[Finish], now: float) -> int:
    return sum([now + after_s > job.deadline + _ROUNDING_S for job, after_s in ends])


def _sizes(largest: int) -> list[int]:
    """Return the powers of two below ``largest``, and ``largest``."""
    sizes = [1]
    while 2 * sizes[-1] < largest:
        sizes.append(2 * sizes[-1])
    return sizes if largest == 1 else [*sizes, largest]


def _batch_s(like: Job, count: float) -> float:
    """Return the seconds of a batch of ``count`` requests, which may be fractional."""
    program = like.program
    rows = min(count * like.rows, program.batch_max)
    lower = max(1, int(rows))
    upper = min(lower + 1, program.batch_max)
    lower_s = program.seconds(0, like.left, lower)
    share = max(0.0, rows - lower)
    return lower_s + share * (program.seconds(0, like.left, upper) - lower_s) if share else lower_s
