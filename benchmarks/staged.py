"""Instances that execute stage by stage, and instances that execute whole batches.

Both are driven by the objects used live: the scheduler of the executor `lazy`, and the sidecar's
batcher with a window. Properties that differ between requests, such as sequence length, belong to
the request.
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
    """A future request.

    Attributes:
        at: arrival time.
        program: model of the request.
        sla_s: objective, in seconds.
        left: actual number of iterations of the model's loops.
        predicted: predicted number of decoder iterations.
        ended: time of the response.
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
        """Time from arrival to response."""
        return self.ended - self.at


def lazily(requests: Sequence[PendingArrival], rules: Rules) -> None:
    """Execute requests stage by stage in order of arrival, and record when each ends."""
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
        if block.node_type is NodeType.DECODER and node + 1 == block.end:
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
    """Execute batches that are full or whose window has ended, and record when each ends.

    Args:
        requests: in order of arrival.
        window_s: how long the first request of a batch waits for others.
        size: size of a full batch.
        leaving: whether finished sequences cost their batch no more time, as in the handler; they
            are answered with the batch all the same.
    """
    policy = FixedWindow(FixedWindow.Params(size=size, wait_s=window_s))
    batched(requests, policy, size, leaving=leaving)


def batched(
    requests: Sequence[PendingArrival], policy: BatchPolicy, size: int, *, leaving: bool = False
) -> None:
    """Execute whole batches as a batch policy closes them, and record when each ends.

    Args:
        requests: in order of arrival.
        policy: batch policy of the sidecar.
        size: size of a full batch.
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
    """Return the time of a batch that runs as long as its longest sequences."""
    members: list[PendingArrival] = [request.payload for request in batch.requests]
    left = RemainingRuns(
        max(member.left.encoder for member in members),
        max(member.left.decoder for member in members),
    )
    return members[0].program.seconds(0, left, len(members))


def _leaving_s(batch: Batch) -> float:
    """Return the time of an encoder and a decoder whose batch shrinks as sequences finish."""
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
