"""Decides what runs next, and which of the waiting requests are admitted between two nodes.

Theory of operation
-------------------
The caller adds requests as they arrive, asks `next` for a batch, runs its node, and reports with
`ran`. Between two nodes, at a boundary, waiting requests are considered: an empty table takes the
oldest and those that may start with it; otherwise new ones are put on top if it pays
(`join_decision`), or, as in the paper, if no slack becomes negative (`slack`). No request waits for
a batch to fill: there is no window. Joining pays less with every node that the running requests
have completed; so a request refused for that is only considered again when another has arrived or
left.

Requests are admitted first come first served. If the oldest is refused, none is admitted before it;
so the table empties in bounded time and the oldest starts. Only if a model's largest batch is
already in the table can others overtake its requests. So no request starves, with a deadline or
without.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from carpool.lazy_batching import join_decision, slack
from carpool.lazy_batching.batch_table import BatchTable
from carpool.lazy_batching.rules import Rules

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from carpool.lazy_batching.batch_table import Entry
    from carpool.lazy_batching.job import Job
    from carpool.lazy_batching.program import Program

__all__ = ["Scheduler"]

_REMEMBERED, _ENOUGH = 64, 8  # arrivals from which a rate is estimated


class Scheduler:
    """Schedules the stages of one device.

    Args:
        rules: How requests are admitted.

    Attributes:
        table: The running requests.
    """

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        self.table = BatchTable()
        self._waiting: dict[tuple[Program, Hashable], list[Job]] = {}
        self._rates: dict[Program, _Rate] = {}
        self._unpaid: int | None = None  # the table's changes when it did not pay to join it

    @property
    def waiting(self) -> int:
        """Number of requests that have not been admitted."""
        return sum(map(len, self._waiting.values()))

    def add(self, job: Job) -> None:
        """Add a request that has arrived."""
        self._unpaid = None
        self._rates.setdefault(job.program, _Rate()).arrived(job.arrived)
        self._waiting.setdefault((job.program, job.key), []).append(job)

    def cancel(self, job: Job) -> bool:
        """Remove a waiting request; return False if it is not waiting."""
        group = self._waiting.get((job.program, job.key), [])
        if job not in group:
            return False
        group.remove(job)
        self._unpaid = None
        if not group:
            del self._waiting[job.program, job.key]
        return True

    def next(self, now: float) -> Entry | None:
        """Admit requests and return the batch whose node is to run; None if there is none.

        It remains the running batch until `ran` is called.
        """
        if self._waiting and self._unpaid != self.table.changes:
            self._admit(now)
        return self.table.top

    def ran(self, done: Collection[Job] = (), failed: Collection[Job] = ()) -> list[Job]:
        """Report that the node of the batch returned by `next` has run.

        Args:
            done: Members whose decoder has ended.
            failed: Members on which the node failed; they leave, the others continue.

        Returns:
            The finished requests.
        """
        return self.table.advance(done, failed)

    def _admit(self, now: float) -> None:
        full: set[Program] = set()
        for key in sorted(self._waiting, key=lambda key: self._waiting[key][0].id):
            program, waiting = key[0], self._waiting[key]
            rows_max = program.batch_max - self.table.rows(program)
            group = [] if program in full else _fitting(waiting, rows_max)
            if group:
                self._push(key, self._choose(group, waiting, now))
                return
            full.add(program)  # or smaller ones would pass one with many rows, forever

    def _choose(self, group: list[Job], waiting: list[Job], now: float) -> int:
        """Return how many requests to admit from ``group``, the first of ``waiting``."""
        stack, rules = list(self.table), self.rules
        if any(entry.overtaken >= rules.overtaken_max for entry in stack):
            return 0
        if rules.pays:
            if not stack:
                return join_decision.best_size(waiting, len(group), now)
            return self._paying(stack, group, now)
        count = self._admissible(stack, group, now)
        return count if stack else max(1, count)  # one has to be the first, late or not

    def _admissible(self, stack: list[Entry], group: list[Job], now: float) -> int:
        count = slack.admissible(stack, group, self.rules, now)
        return count if self.rules.partial or count == len(group) else 0

    def _paying(self, stack: list[Entry], group: list[Job], now: float) -> int:
        """Return how many to admit: all of ``group``, the first that make none late, or none."""
        rate_rps = self._rates[group[0].program].rps(now)
        if join_decision.pays(stack, group, rate_rps, now):
            return len(group)
        count = self._admissible(stack, group, now)
        if 0 < count < len(group) and join_decision.pays(stack, group[:count], rate_rps, now):
            return count
        self._unpaid = self.table.changes
        return 0

    def _push(self, key: tuple[Program, Hashable], count: int) -> None:
        if count:
            waiting = self._waiting[key]
            self.table.push(waiting[:count])
            del waiting[:count]
            if not waiting:
                del self._waiting[key]


def _fitting(waiting: list[Job], rows_max: int) -> list[Job]:
    """Return the first requests that fit in ``rows_max`` together."""
    fitting = []
    for job in waiting:
        rows_max -= job.rows
        if rows_max < 0:
            break
        fitting.append(job)
    return fitting


class _Rate:
    """Estimates an arrival rate from the latest requests."""

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=_REMEMBERED)

    def arrived(self, at: float) -> None:
        """Record the arrival of a request."""
        self._seen.append(at)

    def rps(self, now: float) -> float:
        """Return the requests per second up to ``now``; 0 while too few have arrived."""
        span_s = now - self._seen[0] if self._seen else 0.0
        return len(self._seen) / span_s if len(self._seen) >= _ENOUGH and span_s > 0 else 0.0
