"""Publishes the loop's state when it is read: once per second, and when the functions change.

So the loop's process does the same small amount of work for one reader or a thousand: a round over
its functions, between which sidecars are answered, and then writing, in a thread.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson

from scaler.dashboard.sampler import HISTORY
from scaler.web.documents import FUNCTIONS, SHADOW, UNLISTED
from scaler.web.snapshot import PastSamples

if TYPE_CHECKING:
    from scaler.control.functions import Functions
    from scaler.dashboard.history import History
    from scaler.dashboard.sampler import Sampler
    from scaler.metrics import Metrics
    from scaler.web.documents import Documents
    from scaler.web.snapshot import SnapshotFile

__all__ = ["METRICS", "Publisher"]

METRICS = "/metrics"
_EVERY_S = 1.0


class Publisher:
    """Writes snapshots.

    Args:
        functions: The scaler's functions.
        documents: Creates the documents about them.
        sampler: Provides their past samples.
        metrics: Provides the metrics.
        snapshot: The file to write to.
        every_s: Minimum interval between snapshots while the functions stay the same.
    """

    def __init__(
        self,
        functions: Functions,
        documents: Documents,
        sampler: Sampler,
        metrics: Metrics,
        snapshot: SnapshotFile,
        every_s: float = _EVERY_S,
    ) -> None:
        self._functions = functions
        self._documents = documents
        self._sampler = sampler
        self._metrics = metrics
        self._snapshot = snapshot
        self._every_s = every_s
        self._due_s = 0.0
        self._listings = -1
        self._round: asyncio.Task[None] | None = None
        self._told: dict[str, tuple[History, int]] = {}

    async def fresh(self) -> None:
        """Wait until there is a snapshot of the same functions that is at most a second old."""
        listings = self._functions.listings
        if self._round and not self._round.done() and self._listings < listings:
            await asyncio.wait([self._round])  # it does not have the latest changes
        loop = asyncio.get_running_loop()
        old = self._listings < listings or loop.time() >= self._due_s
        if self._round is None or (self._round.done() and old):
            self._due_s, self._listings = loop.time() + self._every_s, self._functions.listings
            self._round = loop.create_task(self._publish())
        await asyncio.shield(self._round)

    async def _publish(self) -> None:
        try:
            await self._write_all()
        except Exception:
            self._told.clear()  # the file may have none of them
            self._listings = -1
            raise

    async def _write_all(self) -> None:
        documents = self._documents
        bodies = {METRICS: self._metrics.render()}
        pasts, restarted, lines = [], [], []
        for controller in list(self._functions):
            await asyncio.sleep(0)  # sidecars are answered in between
            lines.append(documents.line(controller))
            bodies[f"{FUNCTIONS}/{controller.name}"] = _json(documents.whole(controller, lines[-1]))
            bodies[HISTORY + controller.name] = _json(self._sampler.head(controller))
            history = self._sampler.past(controller.name)
            if history is None:
                continue
            known, last = self._told.get(controller.name, (None, 0))
            if known is not history:
                restarted.append(controller.name)
                last = 0
            self._told[controller.name] = (history, history.last)
            new = {sample.number: _json(sample.to_dict()) for sample in history.after(last)}
            pasts.append(PastSamples(controller.name, history.first, new))
        self._told = {past.name: self._told[past.name] for past in pasts}
        bodies[FUNCTIONS] = _json(documents.overview(lines))
        if unlisted := documents.unlisted():
            bodies[UNLISTED] = unlisted.encode()
        if shadow := documents.shadow():
            bodies[SHADOW] = _json(shadow)
        await asyncio.to_thread(self._write, restarted, bodies, pasts)

    def _write(
        self, restarted: list[str], bodies: dict[str, bytes], pasts: list[PastSamples]
    ) -> None:
        for name in restarted:
            self._snapshot.forget(name)
        self._snapshot.publish(bodies, pasts)


def _json(document: object) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS)
