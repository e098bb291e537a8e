"""Runs stages of models on a thread, while other threads submit requests.

`carpool.lazy_batching.scheduler` decides what runs; its batches are assembled from rows here, run,
and split again. If a stage raises for several requests, it is run for each of them alone, so that
only those at fault fail, and the others continue together.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from carpool.lazy_batching.job import Job
from carpool.lazy_batching.lengths import Lengths
from carpool.lazy_batching.program import NodeType, RemainingRuns
from carpool.lazy_batching.scheduler import Scheduler
from watchdog_plugin import logs
from watchdog_plugin.stage_execution.rows import Rows, gather, spread

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from carpool.lazy_batching.program import Program
    from carpool.lazy_batching.rules import Rules
    from watchdog_plugin.protocols.tensors import Arrays
    from watchdog_plugin.stage_execution.staged_model import StagedModel

__all__ = ["Executor", "Latch", "Member", "ServedModel", "run_stage"]


class Latch:
    """Lets a caller wait until ``count`` requests have ended."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._bell = threading.Lock()
        if count:
            self._bell.acquire()

    def one_ended(self) -> None:
        """Count down by one; only called from the executor's thread."""
        self._left -= 1
        if not self._left:
            self._bell.release()

    def wait(self) -> None:
        """Wait until all requests have ended."""
        with self._bell:
            pass


class Member:
    """One request in the executor.

    Attributes:
        served: Its model.
        rows: Its intermediate values.
        latch: Counted down when it ends.
        steps: Number of steps its decoder has run.
        ended: Whether its decoder has run its last step.
        emitted: The outputs of each step, and which of their rows belong to it.
        outcome: Its outputs or its error, once it has ended.
    """

    __slots__ = ("emitted", "ended", "latch", "outcome", "rows", "served", "steps")

    def __init__(self, served: ServedModel, values: Arrays, rows: int, latch: Latch) -> None:
        self.served = served
        self.rows = Rows(values, 0, rows, rows)
        self.latch = latch
        self.steps = 0
        self.ended = False
        self.emitted: list[tuple[Arrays, slice]] = []
        self.outcome: Arrays | Exception = {}

    def end(self, error: Exception | None = None) -> None:
        """End the request, with its outputs or with ``error``."""
        if error is not None:
            self.outcome = error
        elif self.emitted:
            self.outcome = self._answer()
        else:
            self.outcome = self.rows.arrays
        self.latch.one_ended()

    def _answer(self) -> Arrays | Exception:
        try:
            return {
                name: np.stack([step[name][own] for step, own in self.emitted], axis=1)
                for name in self.emitted[0][0]
            }
        except Exception as error:  # noqa: BLE001  one answer too large is no other's fault
            return error


class ServedModel:
    """A model on the executor, with its stage times and the lengths of its sequences."""

    def __init__(self, model: StagedModel, program: Program) -> None:
        self.model = model
        self.program = program
        self.lengths = Lengths(unseen=max(1, model.steps_max // 2))


class Executor:
    """Runs the stages of all models that share a device.

    Args:
        rules: Rules for admitting requests.
    """

    def __init__(self, rules: Rules | None = None) -> None:
        self._scheduler = Scheduler(rules)
        self._incoming: deque[Job] = deque()
        self._wake = threading.Condition()
        self._number = 0
        self._thread = threading.Thread(target=self._run, name="stages", daemon=True)
        self._thread.start()

    def submit(
        self,
        served: ServedModel,
        requests: Sequence[tuple[Arrays, int, float]],
        key: Hashable,
        latch: Latch,
    ) -> list[Member]:
        """Submit requests; those with equal keys are batched.

        Args:
            served: Their model.
            requests: Inputs, rows, and seconds to the deadline of each.
            key: What the requests have in common.
            latch: Counted down when each of them has ended.
        """
        now = time.monotonic()
        members = []
        left = RemainingRuns(1, served.lengths.predicted())
        with self._wake:
            for values, rows, budget_s in requests:
                member = Member(served, values, rows, latch)
                members.append(member)
                self._number += 1
                deadline = now + budget_s if budget_s < math.inf else math.inf
                self._incoming.append(
                    Job(
                        self._number,
                        served.program,
                        now,
                        deadline=deadline,
                        left=left,
                        key=key,
                        rows=rows,
                        payload=member,
                    )
                )
            self._wake.notify()
        return members

    def _run(self) -> None:
        try:
            while True:
                self._boundary()
        except BaseException as error:  # noqa: BLE001  without this thread no request is answered
            logs.say_failure("the scheduler of stages", error)
            os._exit(1)

    def _boundary(self) -> None:
        """Admit the requests that have arrived, then run one stage, or wait for a request."""
        scheduler = self._scheduler
        while self._incoming:
            scheduler.add(self._incoming.popleft())
        entry = scheduler.next(time.monotonic())
        if entry is None:
            with self._wake:
                if not self._incoming:
                    self._wake.wait()
            return
        jobs = list(entry.jobs)
        failed = run_stage(jobs, entry.node)
        done = {job for job in jobs if job.payload.ended}
        finished = scheduler.ran(done, failed.keys())
        for job, error in failed.items():
            job.payload.end(error)
        for job in finished:
            member: Member = job.payload
            if member.steps:
                member.served.lengths.observe(member.steps)
            member.end()


def run_stage(jobs: list[Job], node: int) -> dict[Job, Exception]:
    """Run a stage of a model for these requests; return the errors of those on which it failed."""
    try:
        _together(jobs, node)
    except BaseException as error:  # noqa: BLE001  which is at fault shows one by one
        if len(jobs) == 1:
            return {jobs[0]: error if isinstance(error, Exception) else _quit(error)}
        logs.say_failure("a stage for several requests", error)
        failed: dict[Job, Exception] = {}
        for job in jobs:
            failed |= run_stage([job], node)
        return failed
    return {}


def _quit(error: BaseException) -> Exception:
    """Return an error for the request, as an author's sys.exit() must not end the process."""
    failure = RuntimeError(f"a stage raised {type(error).__name__}")
    failure.__cause__ = error
    return failure


def _together(jobs: list[Job], node: int) -> None:
    members: list[Member] = [job.payload for job in jobs]
    model = members[0].served.model
    step = model.run(node, gather([member.rows for member in members]))
    counts = [job.rows for job in jobs]
    rows = sum(counts)
    for array in (*step.values.values(), *step.emitted.values()):
        if array.shape[:1] != (rows,):
            msg = f"a stage returned {array.shape} for {rows} rows: expected a row for each"
            raise ValueError(msg)
    decoding = jobs[0].program.block(node).node_type is NodeType.DECODER
    done: list[bool] | None = None
    if step.done is not None:
        done = np.logical_and.reduce(step.done.reshape(rows, -1), axis=1).tolist()
    for member, part in zip(members, spread(step.values, counts), strict=True):
        member.rows = part
        if decoding:
            member.steps += 1
            _, start, end, _ = part
            member.emitted.append((step.emitted, slice(start, end)))
            over = member.steps >= model.steps_max
            member.ended = over or done is None or all(done[start:end])
