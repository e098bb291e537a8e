"""A simulated instance with the executor `lazy`, which runs one stage of one batch at a time.

The scheduler used live decides which requests join. Stages of a model take equal shares of its
time, which is drawn as for whole batches. The device has no clock: its owner calls `end` when a
stage is done.
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

__all__ = ["FinishedBatch", "StagedDevice"]


class FinishedBatch(NamedTuple):
    """A batch of the sidecar whose requests have all been answered.

    Attributes:
        batch: the batch as sent.
        exec_s: its share of the time of the stages its requests were in.
        cost: cost of that time.
    """

    batch: Batch
    exec_s: float
    cost: float


@dataclass(slots=True)
class _Flight:
    """A batch in flight: its running requests, and its share of the device's time."""

    batch: Batch
    left: int
    exec_s: float = 0.0


class StagedDevice:
    """Executes stages.

    Args:
        execution: execution times of batches.
        program: stages of the model.

    Attributes:
        busy: whether a stage runs; only the owner resets it.
        together: number of requests answered together last.
    """

    __slots__ = ("_execution", "_number", "_program", "_scheduler", "_stage_s", "busy", "together")

    def __init__(self, execution: Execution, program: Program) -> None:
        self._scheduler = Scheduler()
        self._number = 0
        self._stage_s = 0.0
        self.busy = False
        self.together = 0
        self._execution = execution
        self._program = program

    def take(self, batch: Batch) -> None:
        """Accept a batch; its requests join one by one."""
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
        """Start the next stage; return its duration, or None if there is none to run."""
        entry = self._scheduler.next(now)
        if entry is None:
            return None
        self.busy = True
        self._stage_s = self._execution.run(entry.rows)[0] / len(entry.program)
        return self._stage_s

    def end(self) -> list[FinishedBatch]:
        """Finish the stage; return the batches that it completed."""
        entry = self._scheduler.table.top
        assert entry is not None  # noqa: S101  a stage ran
        share_s = self._stage_s / entry.rows
        for job in entry.jobs:
            job.payload.exec_s += share_s
        finished = self._scheduler.ran()
        if finished:
            self.together = len(finished)
        landed = []
        for job in finished:
            flight: _Flight = job.payload
            flight.left -= 1
            if not flight.left:
                cost = self._execution.cost(flight.exec_s)
                landed.append(FinishedBatch(flight.batch, flight.exec_s, cost))
        return landed
