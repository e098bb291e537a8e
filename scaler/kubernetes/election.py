"""Takes part in the election of the scaler that plans, for as long as it runs.

The Lease is checked every two seconds in a thread, so that neither planning nor slow lists delay
its renewal.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from carpool.errors import CarpoolError
from scaler.kubernetes.lease import Candidate

if TYPE_CHECKING:
    from scaler.kubernetes.lease import Record, Timing

__all__ = ["Election", "LeaseStore"]

log = logging.getLogger(__name__)

_UNIQUE_BYTES = 4
_MS_PER_S = 1000


class LeaseStore(Protocol):
    """A store of the Lease."""

    def read(self) -> Record | None:
        """Read the Lease; None if there is none."""

    def write(self, record: Record) -> Record:
        """Write the Lease unless it has changed since it was read, and return its new state."""


class Election:
    """One candidate's part in the election.

    Args:
        leases: Store of the Lease.
        address: Address of this scaler, ``HOST:PORT``.
        timing: Durations of the election.
    """

    def __init__(self, leases: LeaseStore, address: str, timing: Timing | None = None) -> None:
        self._identity = f"{socket.gethostname()}_{secrets.token_hex(_UNIQUE_BYTES)}"
        self._candidate = Candidate(self._identity, address, timing)
        self._leases = leases
        self._said = ""
        self._changed = asyncio.Event()

    @property
    def term(self) -> int:
        """Term of the plans that this scaler may make now; 0 if it does not lead."""
        return self._candidate.term(time.monotonic())

    @property
    def term_before(self) -> int:
        """Term of the leader before this one; 0 if there was none."""
        return self._candidate.term_before

    @property
    def leader(self) -> str:
        """Address of another scaler that leads; empty if none is known."""
        lease = self._candidate.lease
        return lease.address if lease and lease.holder != self._identity else ""

    def leads(self, term: int) -> bool:
        """Return whether this scaler leads in this term."""
        return self.term == term

    async def run(self) -> None:
        """Check, take and renew the Lease until cancelled; then give it back."""
        tasks: set[asyncio.Task[None]] = set()  # at most one
        try:
            while True:
                tasks = {asyncio.create_task(asyncio.to_thread(self._look))}
                await asyncio.wait(tasks)
                self._changed.set()
                await asyncio.sleep(self._candidate.timing.renew_s)
        finally:
            self._candidate.end()
            if tasks:  # its thread continues after cancellation, and may still take the Lease
                await asyncio.wait(tasks)
            await asyncio.to_thread(self._release)

    async def won(self) -> int:
        """Wait until this scaler leads, and return the term."""
        while not (term := self.term):
            self._changed.clear()
            await self._changed.wait()
        return term

    async def lost(self, term: int) -> None:
        """Wait until this scaler no longer leads in this term."""
        while self.leads(term):
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._candidate.timing.renew_s):
                    await self._changed.wait()

    def _look(self) -> None:
        began_s = time.monotonic()
        try:
            lease = self._leases.read()
            record = self._candidate.next(lease, began_s, _wall_ms())
            if record:
                self._candidate.written(self._leases.write(record), began_s)
        except CarpoolError as error:
            self._say(f"the Lease cannot be read or written: {error}")
        except Exception:  # the next check may succeed, and only this task makes one
            log.exception("checking the Lease failed")
        else:
            self._say("")

    def _release(self) -> None:
        record = self._candidate.released(_wall_ms())
        with suppress(CarpoolError):  # without renewal it expires anyway
            if record:
                self._leases.write(record)

    def _say(self, trouble: str) -> None:
        if trouble and trouble != self._said:
            log.warning("%s", trouble)
        self._said = trouble


def _wall_ms() -> int:
    return int(time.time() * _MS_PER_S)
