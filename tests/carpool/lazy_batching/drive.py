"""Run a scheduler in simulated time on one device whose nodes take exactly their stated times."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from carpool.lazy_batching.program import Node, NodeType, Program
from carpool.lazy_batching.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.lazy_batching.job import Job
    from carpool.lazy_batching.rules import Rules

__all__ = ["Drive", "program"]


def program(*seconds: float, batch_max: int = 64, per_item: float = 0.0) -> Program:
    """Return a model of static nodes; each further item adds ``per_item`` of a node's seconds."""
    return Program(
        "model",
        [
            Node([each * (1 + per_item * (size - 1)) for size in range(1, batch_max + 1)])
            for each in seconds
        ],
    )


@dataclass
class Drive:
    """Record of a simulated run.

    Attributes:
        ended: end time of each request.
        batches: (time, requests) of every node that ran.
        steps: number of times that a decoder's last node has run, by request.
    """

    rules: Rules | None = None
    lengths: Mapping[int, int] = field(default_factory=dict)
    ended: dict[int, float] = field(default_factory=dict)
    batches: list[tuple[float, tuple[int, ...]]] = field(default_factory=list)
    nodes: dict[int, list[int]] = field(default_factory=dict)
    steps: dict[int, int] = field(default_factory=dict)

    def run(self, jobs: Sequence[Job], free_at: float = 0.0) -> Drive:
        """Run all jobs on a device that is busy until ``free_at``."""
        scheduler = Scheduler(self.rules)
        coming = sorted(jobs, key=lambda job: job.arrived)
        now = free_at
        while coming or scheduler.waiting or scheduler.table.top:
            while coming and coming[0].arrived <= now:
                scheduler.add(coming.pop(0))
            entry = scheduler.next(now)
            if entry is None:
                assert coming, "nothing runs, though a request waits"
                now = max(now, coming[0].arrived)
                continue
            members = list(entry.jobs)
            assert sum(r.rows for r in members) == entry.rows <= entry.program.batch_max
            self.batches.append((now, tuple(r.id for r in members)))
            for job in members:
                self.nodes.setdefault(job.id, []).append(entry.node)
            now += entry.program.node_s(entry.node, entry.rows)
            for job in scheduler.ran(self._done(entry.program, entry.node, members)):
                assert job.id not in self.ended
                self.ended[job.id] = now
        return self

    def _done(self, of: Program, node: int, members: Sequence[Job]) -> list[Job]:
        block = of.block(node)
        if block.node_type is not NodeType.DECODER or node + 1 < block.end:
            return []
        for job in members:
            self.steps[job.id] = self.steps.get(job.id, 0) + 1
        return [r for r in members if self.steps[r.id] >= self.lengths.get(r.id, 1)]

    @property
    def last(self) -> float:
        """Time at which the last request ended."""
        return max(self.ended.values(), default=-math.inf)
