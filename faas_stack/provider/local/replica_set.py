"""The replicas of one function: started and drained to match the desired state, and chosen from.

Theory of operation: `reconcile` compares the desired with the actual state and starts or drains
replicas; it is called whenever either changes and never waits. A new revision is rolled out with
one replica above the desired number at a time. One replica of the old revision is drained for each
new one that is ready, so a revision that never becomes ready does not replace anything. If the
machine has no capacity for the additional replica, an old one is drained first, and requests wait
for its replacement. A draining replica gets no further requests, and is stopped when its in-flight
requests are finished.
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
    from collections.abc import Awaitable, Callable

    from faas_stack.provider.backend import Backend
    from faas_stack.provider.deployment import Deployment

__all__ = ["ReplicaSet", "rollout_step"]

_SURGE = 1


def rollout_step(
    replicas: list[Replica], revision: int, wanted: int, *, full: bool = False
) -> tuple[int, list[Replica]]:
    """Return the number of replicas of ``revision`` to start now, and the ones to drain.

    Args:
        replicas: All existing replicas.
        revision: Desired revision.
        wanted: Desired number of replicas.
        full: Whether there is no capacity for an additional replica.
    """
    live = sorted((r for r in replicas if not r.draining), key=lambda r: not r.ready)
    new = [r for r in live if r.revision == revision]
    old = [r for r in live if r.revision != revision]
    kept = max(0, wanted - sum(r.ready for r in new) - (1 if full else 0))
    drain = new[wanted:] + old[kept:]
    more = wanted + (_SURGE if old and not full else 0) - len(new) - len(old[:kept])
    return max(0, min(wanted - len(new), more)), drain


class ReplicaSet:
    """The replicas of one function.

    Attributes:
        replicas: Existing replicas, ready or not.
        revision: Desired revision.
        wanted: Desired number of its replicas.
        log: Log of their output.
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
        """Number of replicas that accept requests."""
        return sum(r.ready for r in self.replicas)

    @property
    def failing(self) -> bool:
        """Whether every replica repeatedly ends before it is ready."""
        live = [r for r in self.replicas if not r.draining]
        return bool(live) and all(r.instance.failing for r in live)

    @property
    def reason(self) -> str:
        """Why a replica is not ready, from the first one that gives a reason; else empty."""
        return next((r.instance.reason for r in self.replicas if r.instance.reason), "")

    @property
    def confined(self) -> str:
        """How limits are enforced, as the first replica to report it says; empty if none does."""
        return next((r.instance.confined for r in self.replicas if r.instance.confined), "")

    def scale(self, replicas: int) -> None:
        """Set the desired number of replicas."""
        self.wanted = replicas
        self.reconcile()

    def update(self, deployment: Deployment, replicas: int) -> None:
        """Replace the replicas without interrupting service, unless the ``uid`` is unchanged."""
        if deployment.uid != self._deployment.uid:
            self.revision = next(self._revisions)
        self._deployment = deployment
        self.scale(replicas)

    def roll_back(self, deployment: Deployment, revision: int) -> None:
        """Return to an earlier revision; its remaining replicas stay."""
        self._deployment = deployment
        self.revision = revision
        self.reconcile()

    async def change(self) -> None:
        """Wait until the state may have changed."""
        await self._waiting.change()

    def reconcile(self) -> None:
        """Start and drain replicas as needed, and wake calls that wait for a ready one."""
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

    async def acquire(self, patience_s: float, start: Callable[[], Awaitable[None]]) -> Replica:
        """Acquire the ready replica with the fewest in-flight requests, waiting for one if needed.

        The caller must ``release`` it.

        Args:
            patience_s: Time limit.
            start: Starts the function if it is scaled to zero.

        Raises:
            Overloaded: No replica became ready in time, or none can become ready.
            NotFound: The function was removed in the meantime.
        """
        replica = await self._waiting.replica(patience_s, start)
        replica.acquire()
        return replica

    def leave(self) -> None:
        """Release the replicas, which keep running."""
        for replica in self.replicas:
            replica.close()
        self.log.close()

    async def remove(self) -> None:
        """Drain all replicas and wait until the last has ended."""
        self._waiting.removed = True
        self.scale(0)
        await self._drains.join()
        self.log.close()

    def _is_full(self) -> bool:
        """Return whether no capacity is free for another replica or held by a surplus one."""
        ledger = self._backend.ledger
        if ledger.fits(self._backend.size(self._deployment)):
            return False
        names = [r.instance.name for r in self.replicas if not r.draining]
        return sum(ledger.assignment(name) is not None for name in names) <= self.wanted

    def choose(self) -> Replica | None:
        """Return the ready replica with the least load; None if none is ready."""
        chosen = None  # for every call; mostly there is one replica, whose load is not needed
        for replica in self.replicas:
            if replica.ready and (chosen is None or replica.load < chosen.load):
                chosen = replica
        return chosen

    async def _drain(self, replica: Replica) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._grace_s):
                await replica.idle()
        await self._backend.stop(replica.instance)
        replica.close()
        self.replicas.remove(replica)
        self.reconcile()
