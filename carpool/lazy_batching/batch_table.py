"""The BatchTable: a stack of partly executed batches, the topmost of which runs.

Theory of operation
-------------------
An admitted request is put on top, at the first node, and catches up with the batch below. When
both are at the same node they merge, repeatedly, until the two topmost differ.
A batch whose members part, at the end of a loop that some of them run once more, is split: in an
encoder those that stay are on top, so that they catch up; in a decoder the finished ones are, so
that they leave at once.

All batches of one model together are never larger than its largest batch. So a request that catches
up fits below, and none is admitted just to run ahead: between two runs of a batch's node, no more
requests of its model are put on top than fit in. Requests of other models could be, without end;
each batch counts how many have been (`overtaken`), and admission stops before there are too many.
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
    """Batch of requests of one model at one node.

    Attributes:
        jobs: Requests in order of admission.
        node: Node that runs next.
        rows: Rows of all its requests.
        overtaken: Batches put on top of it since it ran, of those that cannot all merge.
    """

    jobs: list[Job]
    node: int
    rows: int
    overtaken: int = 0

    @property
    def program(self) -> Program:
        """Model of the requests."""
        return self.jobs[0].program

    @property
    def key(self) -> Hashable:
        """Key that other requests must share to join."""
        return self.jobs[0].key

    def joins(self, other: Entry) -> bool:
        """Return whether this batch and ``other`` merge when they meet."""
        return (
            self.program is other.program
            and self.key == other.key
            and self.rows + other.rows <= self.program.batch_max
        )


class BatchTable:
    """The stack of batches.

    Attributes:
        changes: How often its batches have changed by arrivals, departures, merges and splits.
    """

    __slots__ = ("_rows", "_stack", "changes")

    def __init__(self) -> None:
        self.changes = 0
        self._stack: list[Entry] = []
        self._rows: dict[Program, int] = {}

    def __len__(self) -> int:
        return len(self._stack)

    def __iter__(self) -> Iterator[Entry]:
        """Iterate over the batches from the bottom to the top."""
        return iter(self._stack)

    @property
    def top(self) -> Entry | None:
        """Batch that runs next; None if the table is empty."""
        return self._stack[-1] if self._stack else None

    def rows(self, program: Program) -> int:
        """Return the number of rows of all requests of ``program`` in the table."""
        return self._rows.get(program, 0)

    def push(self, jobs: list[Job]) -> None:
        """Put requests of one model and key on top, at the model's first node."""
        entry = _entry(jobs, 0)
        if not all(entry.joins(below) for below in self._stack):
            for below in self._stack:
                below.overtaken += 1
        self._count(jobs, 1)
        self.changes += 1
        self._stack.append(entry)
        self._merge()

    def advance(self, done: Collection[Job] = (), failed: Collection[Job] = ()) -> list[Job]:
        """Move the topmost batch past its node, which has run.

        Args:
            done: Members whose sequence ends with this step of a decoder.
            failed: Members for which the node failed; they leave.

        Returns:
            The jobs that have reached their model's end and left the table.
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
        if block.node_type is NodeType.DECODER:
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


def _entry(jobs: list[Job], node: int) -> Entry:
    return Entry(jobs, node, sum([job.rows for job in jobs]))


def _part(entry: Entry, done: Collection[Job]) -> tuple[list[Job], list[Job]]:
    """Return the requests that repeat the loop, and those that move on; within a loop, all do."""
    block = entry.program.block(entry.node)
    if block.node_type is NodeType.STATIC or entry.node + 1 < block.end:
        return [], entry.jobs
    staying: list[Job] = []
    going: list[Job] = []
    for job in entry.jobs:
        left = job.left
        if block.node_type is NodeType.ENCODER:
            job.left = RemainingRuns(left.encoder - 1, left.decoder)
            (staying if left.encoder > 1 else going).append(job)
        else:
            # One that runs longer than predicted is assumed to end with this step.
            job.left = RemainingRuns(left.encoder, max(1, left.decoder - 1))
            (going if job in done else staying).append(job)
    return staying, going
