"""The BatchTable: a stack of batches in the middle of their models, the topmost of which runs.

Theory of operation
-------------------
An admitted request is put on top, at the first node, and catches up with the batch below. Where
both stand at the same node they become one, again and again, until two on top of each other differ.
A batch whose members part, at the end of a loop that some of them run once more, becomes two: in an
encoder those that stay are on top, so that they catch up; in a decoder the finished ones are, so
that they leave at once.

All batches of one model together are never larger than its largest batch. So a request that catches
up fits below, and none is admitted just to run ahead: between two runs of a batch's node, no more
requests of its model are put on top than fit in. Requests of other models could be, for ever; each
batch says how many have been (`overtaken`), and admission stops before it is too many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool.lazy_batching.program import NodeType, RemainingRuns

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterator

    from carpool.lazy_batching.job import Job
    from carpool.lazy_batching.program import Program

__all__ = ["BatchTable", "Entry"]


@dataclass(slots=True, eq=False)
class Entry:
    """Requests of one model at one node.

    Attributes:
        jobs: in order of admission.
        node: the node that runs next.
        rows: of all its requests.
        overtaken: batches put on top of it since it ran, where not all can become one.
    """

    jobs: list[Job]
    node: int
    rows: int
    overtaken: int = 0

    @property
    def program(self) -> Program:
        """Their model."""
        return self.jobs[0].program

    @property
    def key(self) -> Hashable:
        """What others must have to join them."""
        return self.jobs[0].key

    def joins(self, other: Entry) -> bool:
        """Whether it and ``other`` become one where they meet."""
        return (
            self.program is other.program
            and self.key == other.key
            and self.rows + other.rows <= self.program.batch_max
        )


class BatchTable:
    """The stack.

    Attributes:
        changes: how often its batches have become others: by arrivals, departures and splits.
    """

    __slots__ = ("_rows", "_stack", "changes")

    def __init__(self) -> None:
        self.changes = 0
        self._stack: list[Entry] = []
        self._rows: dict[Program, int] = {}

    def __len__(self) -> int:
        return len(self._stack)

    def __iter__(self) -> Iterator[Entry]:
        """From the bottom to the top."""
        return iter(self._stack)

    @property
    def top(self) -> Entry | None:
        """The batch that runs next."""
        return self._stack[-1] if self._stack else None

    def rows(self, program: Program) -> int:
        """Rows of all requests of ``program`` in the table."""
        return self._rows.get(program, 0)

    def push(self, jobs: list[Job]) -> None:
        """Put requests of one model and key on top, at its first node."""
        entry = _entry(jobs, 0)
        if not all(entry.joins(below) for below in self._stack):
            for below in self._stack:
                below.overtaken += 1
        self._count(jobs, 1)
        self.changes += 1
        self._stack.append(entry)
        self._merge()

    def advance(self, done: Collection[Job] = (), failed: Collection[Job] = ()) -> list[Job]:
        """The node of the topmost batch has run.

        Args:
            done: its members whose sequence ends with this step of a decoder.
            failed: its members for which the node failed; they leave.

        Returns:
            The jobs that have come to their model's end, and are not in the table any more.
        """
        entry = self._stack.pop()
        if failed:
            self.changes += 1
            self._count(failed, -1)
            entry.jobs = [job for job in entry.jobs if job not in failed]
        if not entry.jobs:
            return []
        staying, going = _part(entry, done)
        block = entry.program.block(entry.node)
        ended: list[Job] = []
        groups = [(going, entry.node + 1), (staying, block.start)]
        if block.kind is NodeType.DECODER:
            groups.reverse()
        for jobs, node in groups:
            if node == len(entry.program):
                ended = jobs
                self._count(jobs, -1)
            elif jobs:
                self._stack.append(_entry(jobs, node))
        self.changes += bool(ended or (staying and going))
        self._merge()
        return ended

    def _merge(self) -> None:
        stack = self._stack
        while len(stack) > 1 and stack[-1].node == stack[-2].node and stack[-1].joins(stack[-2]):
            self.changes += 1
            above = stack.pop()
            below = stack[-1]
            below.jobs += above.jobs
            below.rows += above.rows
            below.overtaken = max(below.overtaken, above.overtaken)

    def _count(self, jobs: Collection[Job], sign: int) -> None:
        for job in jobs:
            rows = self.rows(job.program) + sign * job.rows
            if rows:
                self._rows[job.program] = rows
            else:
                self._rows.pop(job.program, None)


def _entry(jobs: list[Job], node: int, overtaken: int = 0) -> Entry:
    return Entry(jobs, node, sum([job.rows for job in jobs]), overtaken)


def _part(entry: Entry, done: Collection[Job]) -> tuple[list[Job], list[Job]]:
    """The requests that run the loop once more, and those that go on behind it; inside, all do."""
    block = entry.program.block(entry.node)
    if block.kind is NodeType.STATIC or entry.node + 1 < block.end:
        return [], entry.jobs
    staying: list[Job] = []
    going: list[Job] = []
    for job in entry.jobs:
        left = job.left
        if block.kind is NodeType.ENCODER:
            job.left = RemainingRuns(left.encoder - 1, left.decoder)
            (staying if left.encoder > 1 else going).append(job)
        else:
            # One that runs longer than predicted is assumed to end with this step.
            job.left = RemainingRuns(left.encoder, max(1, left.decoder - 1))
            (going if job in done else staying).append(job)
    return staying, going
