"""The replicas of one function: brought from what runs to what is wanted, and chosen from.

Theory of operation: `reconcile` compares what is wanted with what runs and starts or drains
replicas; it is called whenever either changes and never waits. A new revision is rolled out one
replica above the wanted number at a time, and a replica of the old one is drained only for each new
one that is ready, so a revision that never becomes ready takes nothing away. Where the machine has
no capacity for that one more, an old replica goes first, and requests wait for what takes its
place. A draining replica gets no further request, and is stopped when those it has are answered.
"""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from typing import TYPE_CHECKING

from carpool.task_set import TaskSet
from faas_stack.provider.logs import LogRing
from faas_stack.provider.replica import Replica
from faas_stack.provider.waiting_calls import WaitingCalls

if TYPE_CHECKING:
    from faas_stack.provider.backend import Backend
    from faas_stack.provider.deployment import Deployment

__all__ = ["ReplicaSet", "rollout_step"]

_SURGE = 1


def rollout_step(
    replicas: list[Replica], revision: int, wanted: int, *, full: bool = False
) -> tuple[int, list[Replica]]:
    """How many replicas of ``revision`` to start now, and which ones to drain.

    Args:
        replicas: all there are.
        revision: the one that is wanted.
        wanted: how many.
        full: whether there is no room for one more than that.
    """
    live = sorted((r for r in replicas if not r.draining), key=lambda r: not r.ready)
    new = [r for r in live if r.revision == revision]
    old = [r for r in live if r.revision != revision]
    kept = max(0, wanted - sum(r.ready for r in new) - (1 if full else 0))
    drain = new[wanted:] + old[kept:]
    room = wanted + (_SURGE if old and not full else 0) - len(new) - len(old[:kept])
    return max(0, min(wanted - len(new), room)), drain


class ReplicaSet:
    """The replicas of one function.

    Attributes:
        replicas: those that there are, ready or not.
        revision: which is wanted.
        wanted: how many replicas of it.
        log: what they print.
    """

    def __init__(self, backend: Backend, deployment: Deployment, grace_s: float) -> None:
        self._backend = backend
        self._grace_s = grace_s
        self._deployment = deployment
        self._revisions = itertools.count(1)
        self.revision = 0
        self.wanted = 0
        self._drains = TaskSet()
        self.replicas: list[Replica] = []
        self._waiting = WaitingCalls(
            deployment.service, self.choose, lambda: self.failing, lambda: self.reason
        )
        self.log = LogRing()

    @property
    def available(self) -> int:
        """Replicas that can be sent requests."""
        return sum(r.ready for r in self.replicas)

    @property
    def failing(self) -> bool:
        """Whether nothing is ready and every replica keeps dying before it is."""
        live = [r for r in self.replicas if not r.draining]
        return bool(live) and all(r.instance.failing for r in live)

    @property
    def reason(self) -> str:
        """Why a replica is not ready, of the first one that says so."""
        return next((r.instance.reason for r in self.replicas if r.instance.reason), "")

    @property
    def confined(self) -> str:
        """What holds a replica to its limits, of the first one that says so."""
        return next((r.instance.confined for r in self.replicas if r.instance.confined), "")

    def scale(self, replicas: int) -> None:
        """Set how many replicas there should be."""
        self.wanted = replicas
        self.reconcile()

    def update(self, deployment: Deployment, replicas: int) -> None:
        """Replace what the replicas run, without a gap; nothing, if it has the same ``uid``."""
        if deployment.uid != self._deployment.uid:
            self.revision = next(self._revisions)
        self._deployment = deployment
        self.scale(replicas)

    def roll_back(self, deployment: Deployment, revision: int) -> None:
        """Run an earlier revision again; its replicas that are still there stay."""
        self._deployment = deployment
        self.revision = revision
        self.reconcile()

    async def change(self) -> None:
        """Wait until anything may have changed."""
        await self._waiting.change()

    def reconcile(self) -> None:
        """Start and drain what has to be, and wake calls that wait for a ready replica."""
        full = self._is_full()
        count, drain = rollout_step(self.replicas, self.revision, self.wanted, full=full)
        for replica in drain:
            replica.draining = True
            self._drains.start(self._drain(replica))
        for _ in range(count):
            instance = self._backend.start(self._deployment, self.log, self.reconcile)
            most = self._deployment.options.answer_max_bytes
            self.replicas.append(Replica(instance, self.revision, most))
        self._waiting.wake()

    async def acquire(self, patience_s: float) -> Replica:
        """The ready replica with the least to do, waiting for one if there is none.

        The caller must ``release`` it.

        Raises:
            Overloaded: none became ready in time, or none is going to.
            NotFound: the function was removed meanwhile.
        """
        replica = await self._waiting.replica(patience_s)
        replica.acquire()
        return replica

    def leave(self) -> None:
        """Release the replicas, which keep running."""
        for replica in self.replicas:
            replica.close()
        self.log.close()

    async def remove(self) -> None:
        """Drain every replica; returns when the last is gone."""
        self._waiting.removed = True
        self.scale(0)
        await self._drains.join()
        self.log.close()

    def _is_full(self) -> bool:
        """Whether nothing is free for one more replica, nor held by one beyond those wanted."""
        ledger = self._backend.ledger
        if ledger.fits(self._backend.size(self._deployment)):
            return False
        names = [r.instance.name for r in self.replicas if not r.draining]
        return sum(ledger.assignment(name) is not None for name in names) <= self.wanted

    def choose(self) -> Replica | None:
        """The ready replica with the least to do, if there is one."""
        ready = [r for r in self.replicas if r.ready]
        return min(ready, key=lambda r: r.in_flight) if ready else None

    async def _drain(self, replica: Replica) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._grace_s):
                await replica.idle()
        await self._backend.stop(replica.instance)
        replica.close()
        self.replicas.remove(replica)
        self.reconcile()
