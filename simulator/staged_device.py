"""An instance with the executor `lazy` in simulated time: one stage of one batch after the other.

The scheduler that decides live which requests join decides it here. Stages of a model take equal
parts of its time; what a stage takes this time is drawn as for whole batches. Knows no clock: its
owner calls `end` when a stage has taken its time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from carpool.lazy_batching.job import Job
from carpool.lazy_batching.scheduler import Scheduler

if TYPE_CHECKING:
    from carpool.lazy_batching.program import Program
    from sidecar.core.batch import Batch
    from simulator.execution import Execution

__all__ = ["FinishedBatch", "StagedDevice", "room_of"]

_SPARE = 2  # of so many batches' requests, one waits to be let in while the others run


def room_of(batch_max: int) -> int:
    """How many batches an instance takes at once, as its handler says it live."""
    return batch_max + -(-batch_max // _SPARE)


class FinishedBatch(NamedTuple):
    """A batch of the sidecar's whose requests have all been answered.

    Attributes:
        batch: as it was sent.
        exec_s: its part of the stages that its requests were in.
        cost: of that.
    """

    batch: Batch
    exec_s: float
    cost: float


@dataclass(slots=True)
class _Flight:
    """A batch that was sent: which of its requests run, and its part of the device's time."""

    batch: Batch
    left: int
    exec_s: float = 0.0


class StagedDevice:
    """Executes stages.

    Args:
        execution: how long batches take.
        program: its stages.

    Attributes:
        busy: whether a stage runs; only its owner says that it no longer does.
        company: how many were answered together last.
    """

    __slots__ = ("_execution", "_number", "_program", "_scheduler", "_stage_s", "busy", "company")

    def __init__(self, execution: Execution, program: Program) -> None:
        self._scheduler = Scheduler()
        self._number = 0
        self._stage_s = 0.0
        self.busy = False
        self.company = 0
        self._execution = execution
        self._program = program

    def take(self, batch: Batch) -> None:
        """A batch has come; its requests are let in one by one."""
        flight = _Flight(batch, len(batch.requests))
        for request in batch.requests:
            self._number += 1
            job = Job(
                self._number,
                self._program,
                request.arrived,
                deadline=request.deadline,
                payload=flight,
            )
            self._scheduler.add(job)

    def begin(self, now: float) -> float | None:
        """Run the next stage; returns what it takes, or None if there is none to run."""
        entry = self._scheduler.next(now)
        if entry is None:
            return None
        self.busy = True
        self._stage_s = self._execution.run(entry.rows)[0] / len(entry.program)
        return self._stage_s

    def end(self) -> list[FinishedBatch]:
        """The stage has run; the batches that have been answered by it."""
        entry = self._scheduler.table.top
        assert entry is not None  # noqa: S101  a stage ran
        share_s = self._stage_s / entry.rows
        for job in entry.jobs:
            job.payload.exec_s += share_s
        finished = self._scheduler.ran()
        if finished:
            self.company = len(finished)
        landed = []
        for job in finished:
            flight: _Flight = job.payload
            flight.left -= 1
            if not flight.left:
                cost = self._execution.cost(flight.exec_s)
                landed.append(FinishedBatch(flight.batch, flight.exec_s, cost))
        return landed
