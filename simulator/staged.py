"""An instance that executes stage by stage in simulated time, and one that executes whole batches.

Both are driven by the objects that run live: the scheduler of the executor `lazy`, and the
sidecar's batcher with a window. What differs from one request to the next, such as the length of a
sequence, is the request's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool.lazy_batching.job import Job
from carpool.lazy_batching.program import NodeType, Program, RemainingRuns
from carpool.lazy_batching.scheduler import Scheduler
from sidecar.core.admission.shedding import Shedding
from sidecar.core.batcher import Batcher
from sidecar.core.dispatch import Upstream
from sidecar.core.request import Request
from sidecar.policies.fixed import FixedWindow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.lazy_batching.rules import Rules
    from sidecar.core.batch import Batch
    from sidecar.core.policy import BatchPolicy

__all__ = ["PendingArrival", "batched", "lazily", "windowed"]


@dataclass(slots=True, eq=False)
class PendingArrival:
    """A request to come.

    Attributes:
        at: when.
        program: its model.
        sla_s: how long its answer may take.
        left: how often it really runs through its model's loops.
        predicted: how often its decoder is believed to.
        ended: when it was answered.
    """

    at: float
    program: Program
    sla_s: float
    left: RemainingRuns = RemainingRuns()  # noqa: RUF009  a tuple
    predicted: int = 1
    ended: float = math.inf
    steps: int = 0

    @property
    def latency_s(self) -> float:
        """From its coming to its answer."""
        return self.ended - self.at


def lazily(requests: Sequence[PendingArrival], rules: Rules) -> None:
    """Execute them stage by stage, in order of arrival; notes when each ends."""
    scheduler, now, following = Scheduler(rules), 0.0, 0
    while True:
        while following < len(requests) and requests[following].at <= now:
            scheduler.add(_rider(following, requests[following]))
            following += 1
        entry = scheduler.next(now)
        if entry is None:
            if following == len(requests):
                return
            now = requests[following].at
            continue
        program, node = entry.program, entry.node
        block = program.block(node)
        done = []
        if block.kind is NodeType.DECODER and node + 1 == block.end:
            for job in entry.jobs:
                job.payload.steps += 1
                if job.payload.steps >= job.payload.left.decoder:
                    done.append(job)
        now += program.node_s(node, entry.rows)
        for job in scheduler.ran(set(done)):
            job.payload.ended = now


def windowed(
    requests: Sequence[PendingArrival], window_s: float, size: int, *, leaving: bool = False
) -> None:
    """Execute whole batches of so many, or of what came within the window; notes when each ends.

    Args:
        requests: in order of arrival.
        window_s: how long the first of a batch waits for others.
        size: of a full batch.
        leaving: sequences that are done cost their batch no more, as in the handler; they are
            answered with it all the same.
    """
    policy = FixedWindow(FixedWindow.Params(size=size, wait_s=window_s))
    batched(requests, policy, size, leaving=leaving)


def batched(
    requests: Sequence[PendingArrival], policy: BatchPolicy, size: int, *, leaving: bool = False
) -> None:
    """Execute whole batches as a batch policy has them leave; notes when each ends.

    Args:
        requests: in order of arrival.
        policy: of the sidecar.
        size: of a full batch.
        leaving: as in `windowed`.
    """
    batcher = Batcher(policy, batch_max=size, queue_max=len(requests) + 1, shedding=Shedding("off"))
    batcher.upstreams.add(Upstream("device", size, up=True))
    now, following = 0.0, 0
    flying: list[tuple[float, Batch]] = []
    while True:
        for batch in batcher.step(now).send:
            starts = max([now, *(lands for lands, _ in flying)])
            flying.append((starts + (_leaving_s if leaving else _whole_s)(batch), batch))
        wake = batcher.wake_at(now)
        lands = flying[0][0] if flying else math.inf
        comes = requests[following].at if following < len(requests) else math.inf
        now = min(max(wake, now), lands, comes)
        if now == math.inf:
            return
        if now == lands:
            _, batch = flying.pop(0)
            batcher.finished(batch, [False] * len(batch.requests), now)
            for request in batch.requests:
                request.payload.ended = now
        while following < len(requests) and requests[following].at <= now:
            coming = requests[following]
            batcher.admit(Request(following, coming.program.name, coming.at, payload=coming), now)
            following += 1


def _rider(number: int, coming: PendingArrival) -> Job:
    left = RemainingRuns(coming.left.encoder, coming.predicted)
    deadline = coming.at + coming.sla_s
    return Job(number, coming.program, coming.at, deadline=deadline, left=left, payload=coming)


def _whole_s(batch: Batch) -> float:
    """A batch runs as long as its longest sequences, input and answer each."""
    members: list[PendingArrival] = [request.payload for request in batch.requests]
    left = RemainingRuns(
        max(member.left.encoder for member in members),
        max(member.left.decoder for member in members),
    )
    return members[0].program.seconds(0, left, len(members))


def _leaving_s(batch: Batch) -> float:
    """An encoder, then a decoder whose batch is as large as there are sequences to go on with."""
    members: list[PendingArrival] = [request.payload for request in batch.requests]
    program, total_s, before = members[0].program, 0.0, 0
    lengths = sorted(member.left.decoder for member in members)
    for place, length in enumerate(lengths):
        still = len(members) - place
        static_s, encoder_s, decoder_s = program.terms(0, still)
        if not place:
            total_s = static_s + encoder_s * max(member.left.encoder for member in members)
        total_s += (length - before) * decoder_s
        before = length
    return total_s
