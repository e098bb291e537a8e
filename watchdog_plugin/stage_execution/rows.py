"""The rows of a request, as a slice of the arrays of the batch that it last ran in.

Requests that stay together are run together again without a copy; they are copied when they are
merged or split. Knows no scheduler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from watchdog_plugin.protocols.tensors import Arrays

__all__ = ["Rows", "gather", "spread"]


class Rows(NamedTuple):
    """Rows ``start`` to ``end`` of ``block``, which has ``size`` rows."""

    block: Arrays
    start: int
    end: int
    size: int

    @property
    def arrays(self) -> Arrays:
        """The rows as arrays; the block itself if they are all of its rows."""
        if self.end - self.start == self.size:
            return self.block
        return {name: array[self.start : self.end] for name, array in self.block.items()}


def gather(parts: Sequence[Rows]) -> Arrays:
    """Return the rows of all parts, in order."""
    block, start, _, size = parts[0]
    for part in parts:  # most often none has come or gone since they ran, so this is quick
        if part[0] is not block or part[1] != start:
            break
        start = part[2]
    else:
        return Rows(block, parts[0][1], start, size).arrays
    arrays = [stretch.arrays for stretch in _stretches(parts)]
    return {name: np.concatenate([each[name] for each in arrays]) for name in arrays[0]}


def spread(block: Arrays, counts: Sequence[int]) -> Iterator[Rows]:
    """Split a batch into parts with the given numbers of rows."""
    size, start = sum(counts), 0
    for count in counts:
        yield Rows(block, start, start + count, size)
        start += count


def _stretches(parts: Sequence[Rows]) -> Iterator[Rows]:
    """Yield the parts, with adjacent ones of the same block merged."""
    current: Rows | None = None
    for part in parts:
        if current is not None and current.block is part.block and current.end == part.start:
            current = current._replace(end=part.end)
            continue
        if current is not None:
            yield current
        current = part
    if current is not None:
        yield current
