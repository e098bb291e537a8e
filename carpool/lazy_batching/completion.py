"""Predicts when the requests of a stack finish if no others arrive.

Simulates the stack with the time of each node at each batch size: the topmost batch catches
up with the one below, and both continue as one. Loops run as often as predicted. The shrinking of a
decoder's batch while it runs is ignored, so predictions are late rather than early.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from carpool.lazy_batching.program import RemainingRuns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.lazy_batching.batch_table import Entry
    from carpool.lazy_batching.job import Job

__all__ = ["Finish", "finishes"]


class Finish(NamedTuple):
    """A request and the time from now until it finishes."""

    job: Job
    after_s: float


class _Group:
    """Batches that will have merged into one."""

    __slots__ = ("entry", "jobs", "node", "rows")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.node = entry.node
        self.jobs = list(entry.jobs)
        self.rows = entry.rows

    def longest(self) -> RemainingRuns:
        lefts = [job.left for job in self.jobs]
        return RemainingRuns(max([left[0] for left in lefts]), max([left[1] for left in lefts]))

    def join(self, below: Entry) -> None:
        self.node = below.node
        self.jobs += below.jobs
        self.rows += below.rows


def finishes(stack: Sequence[Entry]) -> list[Finish]:
    """Return when each request finishes.

    Args:
        stack: Batches from the bottom to the top.
    """
    ends: list[Finish] = []
    now_s = 0.0
    group: _Group | None = None
    for entry in reversed(stack):
        if group is not None:
            program = entry.program
            met_s = None
            if group.entry.program is program and group.entry.key == entry.key:
                fits = group.rows + entry.rows <= program.batch_max
                met_s = (
                    program.until(group.node, group.longest(), entry.node, group.rows)
                    if fits
                    else None
                )
            if met_s is not None:
                now_s += met_s
                group.join(entry)
                continue
            now_s = _end(group, now_s, ends)
        group = _Group(entry)
    if group is not None:
        _end(group, now_s, ends)
    return ends


def _end(group: _Group, now_s: float, ends: list[Finish]) -> float:
    """Run a group to its end; return when the last of its requests finishes."""
    static_s, encoder_s, decoder_s = group.entry.program.terms(group.node, group.rows)
    static_s += now_s
    last_s = now_s
    for job in group.jobs:
        encoder, decoder = job.left
        after_s = static_s + encoder * encoder_s + decoder * decoder_s
        last_s = max(last_s, after_s)
        ends.append(Finish(job, after_s))
    return last_s
