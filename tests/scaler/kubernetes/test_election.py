"""An election that ends returns the Lease, whatever call is in progress."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from scaler.kubernetes.election import Election
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from scaler.kubernetes.lease import Record


@dataclass
class Slow:
    """A Lease whose reads and writes wait for the test."""

    lease: Record | None = None
    writes: int = 0
    held: str = ""
    reached: threading.Event = field(default_factory=threading.Event)
    let: threading.Event = field(default_factory=threading.Event)

    def read(self) -> Record | None:
        """Return the Lease."""
        self._pass("read")
        return self.lease

    def write(self, record: Record) -> Record:
        """Replace the Lease."""
        self._pass("write")
        self.writes += 1
        self.lease = replace(record, version=str(self.writes))
        return self.lease

    def _pass(self, what: str) -> None:
        if what == self.held:
            self.reached.set()
            assert self.let.wait(HANG_S)


async def ended_while(leases: Slow, what: str) -> Election:
    """Return an election that was ended while a call was in progress."""
    leases.held = what
    election = Election(leases, "10.0.0.1:8090")
    running = asyncio.create_task(election.run())
    await asyncio.to_thread(leases.reached.wait, HANG_S)
    running.cancel()
    done, _ = await asyncio.wait([running], timeout=0.2)
    leases.let.set()
    await asyncio.wait([running])
    assert not done, "it has not waited for the look"
    return election


def test_lease_acquired_while_election_ends_is_released() -> None:
    """A Lease that is written after the election was told to end is released."""
    leases = Slow()
    election = asyncio.run(ended_while(leases, "write"))
    assert leases.lease is not None
    assert ("", 2, 0) == (leases.lease.holder, leases.writes, election.term)


def test_lease_read_while_election_ends_is_not_acquired() -> None:
    """A free Lease that is being read when the election ends stays free."""
    leases = Slow()
    asyncio.run(ended_while(leases, "read"))
    assert (None, 0) == (leases.lease, leases.writes)
