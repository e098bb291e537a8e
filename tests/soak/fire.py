"""The load on a sidecar, and its disturbances: kills, plans and an operator's queries."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from tests.soak.asked import stream
from tests.soak.client import Line, Lost
from tests.soak.plans import LedgerCheck, Planner
from tests.soak.tally import Memory, Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.soak.asked import Asked
    from tests.soak.cluster import Cluster

__all__ = ["Fire", "Wanted"]

_LOST_AFTER_S = 200.0  # beyond the objective: by then the sidecar has said 504
_LOOK_EVERY_S = 0.25
_LATEST, _ALL = 300, 1024  # batches looked at: usually, and where that leaves a gap
_BATCH_MAX = 32
_HOPELESS = 500  # violations after which going on tells nothing more


@dataclass(frozen=True, slots=True)
class Wanted:
    """The size of a soak.

    Attributes:
        requests: Number of requests.
        seed: Seed of everything that is drawn.
        handlers: Processes behind the sidecar; 0: the one that it starts itself.
        lines: Connections of clients.
        kill_every_s: Mean time between two SIGKILLs.
        plan_every_s: Time between two plans.
    """

    requests: int = 300_000
    seed: int = 1
    handlers: int = 4
    lines: int = 160
    kill_every_s: float = 3.0
    plan_every_s: float = 1.0


class Fire:
    """The load and disturbances of a cluster.

    Args:
        wanted: The size of the soak.
        cluster: The cluster under load.
        addresses: Addresses of the handlers.
        progress: Called with a line from time to time.

    Attributes:
        tally: What the clients saw.
        ledger: What the operator saw.
        samples: The sidecar's memory during the run.
        planner: The source of the plans.
    """

    def __init__(
        self,
        wanted: Wanted,
        cluster: Cluster,
        addresses: list[str],
        progress: Callable[[str], None],
    ) -> None:
        self._wanted = wanted
        self._cluster = cluster
        self._progress = progress
        self.tally = Tally()
        self.planner = Planner(Random(wanted.seed + 1), addresses, f"{addresses[0]}.ghost")
        self.ledger = LedgerCheck(self.planner.drawn, _BATCH_MAX)
        self.samples: list[Memory] = []

    async def burn(self) -> None:
        """Send all requests, with disturbances throughout."""
        wanted = self._wanted
        questions = stream(Random(wanted.seed), wanted.requests)
        disturbers = [
            asyncio.create_task(disturb())
            for disturb in (self._kill, self._replan, self._look_on, self._measure)
        ]
        try:
            await asyncio.gather(*(self.ask(n, questions) for n in range(wanted.lines)))
        finally:
            for task in disturbers:
                task.cancel()
            ends = await asyncio.gather(*disturbers, return_exceptions=True)
        failed = [end for end in ends if not isinstance(end, asyncio.CancelledError)]
        self.tally.violated(*[f"the soak itself failed: {error!r}" for error in failed])

    async def ask(self, number: int, questions: Iterable[Asked]) -> None:
        """Send one request after the other on one connection."""
        tally, cluster = self.tally, self._cluster
        line = Line(cluster.address, Random(number))
        for asked in questions:
            if tally.violations > _HOPELESS or not cluster.running:
                break
            try:
                async with asyncio.timeout(_LOST_AFTER_S):
                    tally.answered(asked, await line.ask(asked))
            except (Lost, TimeoutError) as error:
                line.drop()
                text = str(error) or f"no answer in {_LOST_AFTER_S:g} s"
                tally.violated(f"{asked.mark} ({asked.kind.value}): {text}")
        try:
            await line.finish()
        except ValueError as error:
            tally.violated(str(error))

    async def _kill(self) -> None:
        rng = Random(self._wanted.seed + 2)
        while True:
            await asyncio.sleep(self._wanted.kill_every_s * rng.uniform(0.5, 1.5))
            await self._cluster.kill_one(rng)

    async def _replan(self) -> None:
        """Propose plans one after the other, once a twentieth of the requests have ended."""
        while self.tally.asked < self._wanted.requests / 20:  # noqa: ASYNC110 - a plain count
            await asyncio.sleep(0.05)
        while True:
            proposal = self.planner.draw()
            status = await self._cluster.propose(proposal)
            if status != 200:
                self.tally.violated(f"a plan was answered {status}: {proposal}")
            await asyncio.sleep(self._wanted.plan_every_s)

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            await self.look()

    async def look(self) -> None:
        """Check the ledger's entries of new batches."""
        for limit in (_LATEST, _ALL):
            entries = await self._cluster.look(f"/v1/batches?limit={limit}")
            if self.ledger.look(entries) < limit:
                return

    def _first_violation(self) -> str:
        """Return the first violation in words, as a run that is cut short shows no others."""
        return f", the first: {self.tally.shown[0]}" if self.tally.shown else ""

    async def _measure(self) -> None:
        before, then_s = 0, time.monotonic()
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            asked, mib = self.tally.asked, self._cluster.memory_mib()
            self.samples.append(Memory(asked, mib))
            passed_s = time.monotonic() - then_s
            if passed_s < 1:
                continue
            self._progress(
                f"{asked}/{self._wanted.requests} requests, {(asked - before) / passed_s:.0f}/s, "
                f"{self._cluster.kills} kills, {len(self.planner.drawn)} plans, {mib:.0f} MiB, "
                f"{self.tally.violations} violations{self._first_violation()}"
            )
            before, then_s = asked, time.monotonic()
