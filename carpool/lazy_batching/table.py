"""The BatchTable: a stack of batches in the middle of their models, the topmost of which runs.

Theory of operation
-------------------
Who is let in is put on top, at the first node, and catches up with the batch below. Where both
stand at the same node they become one, again and again, until two on top of each other differ. A
batch whose members part, at the end of a loop that some of them run once more, becomes two: in an
encoder those who stay are on top, so that they catch up; in a decoder those who are done are, so
that they leave at once.

All batches of one model together are never larger than its largest batch. So whoever catches up
finds room below, and nobody is let in just to run ahead: between two runs of a batch's node, no
more requests of its model are put on top than fit in. Requests of other models could be, for
ever; each batch says how many have been (`overtaken`), and admission stops before it is too many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool.lazy_batching.program import Kind, Left

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterator

    from carpool.lazy_batching.program import Program
    from carpool.lazy_batching.request import Rider

__all__ = ["BatchTable", "Entry"]


@dataclass(slots=True, eq=False)
class Entry:
    """Requests of one model at one node.

    Attributes:
        riders: in order of admission.
        node: the node that runs next.
        seats: rows of them all.
        overtaken: batches put on top of it since it ran, where not all can become one.
    """

    riders: list[Rider]
    node: int
    seats: int
    overtaken: int = 0

    @property
    def program(self) -> Program:
        """Their model."""
        return self.riders[0].program

    @property
    def key(self) -> Hashable:
        """What others must have to join them."""
        return self.riders[0].key

    def joins(self, other: Entry) -> bool:
        """Whether it and ``other`` become one where they meet."""
        return (
            self.program is other.program
            and self.key == other.key
            and self.seats + other.seats <= self.program.batch_max
        )


class BatchTable:
    """The stack.

    Attributes:
        changes: how often its batches have become others: by newcomers, by who left, by who parted.
    """

    __slots__ = ("_seats", "_stack", "changes")

    def __init__(self) -> None:
        self.changes = 0
        self._stack: list[Entry] = []
        self._seats: dict[Program, int] = {}

    def __len__(self) -> int:
        return len(self._stack)

    def __iter__(self) -> Iterator[Entry]:
        """From the bottom to the top."""
        return iter(self._stack)

    @property
    def top(self) -> Entry | None:
        """The batch that runs next."""
        return self._stack[-1] if self._stack else None

    def seats(self, program: Program) -> int:
        """Rows of all requests of ``program`` in the table."""
        return self._seats.get(program, 0)

    def push(self, riders: list[Rider]) -> None:
        """Put requests of one model and key on top, at its first node."""
        entry = _entry(riders, 0)
        if not all(entry.joins(below) for below in self._stack):
            for below in self._stack:
                below.overtaken += 1
        self._count(riders, 1)
        self.changes += 1
        self._stack.append(entry)
        self._merge()

    def advance(self, done: Collection[Rider] = (), failed: Collection[Rider] = ()) -> list[Rider]:
        """The node of the topmost batch has run.

        Args:
            done: its members whose sequence ends with this step of a decoder.
            failed: its members on whom the node failed; they leave.

        Returns:
            Those who have come to their model's end, and are not in the table any more.
        """
        entry = self._stack.pop()
        if failed:
            self.changes += 1
            self._count(failed, -1)
            entry.riders = [rider for rider in entry.riders if rider not in failed]
        if not entry.riders:
            return []
        staying, going = _part(entry, done)
        block = entry.program.block(entry.node)
        ended: list[Rider] = []
        groups = [(going, entry.node + 1), (staying, block.start)]
        if block.kind is Kind.DECODER:
            groups.reverse()
        for riders, node in groups:
            if node == len(entry.program):
                ended = riders
                self._count(riders, -1)
            elif riders:
                self._stack.append(_entry(riders, node))
        self.changes += bool(ended or (staying and going))
        self._merge()
        return ended

    def _merge(self) -> None:
        stack = self._stack
        while len(stack) > 1 and stack[-1].node == stack[-2].node and stack[-1].joins(stack[-2]):
            self.changes += 1
            above = stack.pop()
            below = stack[-1]
            below.riders += above.riders
            below.seats += above.seats
            below.overtaken = max(below.overtaken, above.overtaken)

    def _count(self, riders: Collection[Rider], sign: int) -> None:
        for rider in riders:
            seats = self.seats(rider.program) + sign * rider.seats
            if seats:
                self._seats[rider.program] = seats
            else:
                self._seats.pop(rider.program, None)


def _entry(riders: list[Rider], node: int, overtaken: int = 0) -> Entry:
    return Entry(riders, node, sum([rider.seats for rider in riders]), overtaken)


def _part(entry: Entry, done: Collection[Rider]) -> tuple[list[Rider], list[Rider]]:
    """Who runs the loop once more, and who goes on behind it; everybody inside of one goes on."""
    block = entry.program.block(entry.node)
    if block.kind is Kind.STATIC or entry.node + 1 < block.end:
        return [], entry.riders
    staying: list[Rider] = []
    going: list[Rider] = []
    for rider in entry.riders:
        left = rider.left
        if block.kind is Kind.ENCODER:
            rider.left = Left(left.encoder - 1, left.decoder)
            (staying if left.encoder > 1 else going).append(rider)
        else:
            # Who runs longer than was predicted is about to end, as far as anybody knows.
            rider.left = Left(left.encoder, max(1, left.decoder - 1))
            (going if rider in done else staying).append(rider)
    return staying, going
