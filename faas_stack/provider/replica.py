"""A replica as seen by calls: its address, readiness and load."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from carpool.http.call_client import Calls
from carpool.http.client import ANSWER_BYTES, Pool

if TYPE_CHECKING:
    from faas_stack.provider.backend import Instance

__all__ = ["Replica"]

_CONNECTIONS = 4096  # to one replica, which accepts as many


class Replica:
    """An instance with its revision and its number of in-flight requests.

    Args:
        instance: The instance.
        revision: Revision of the deployment that it was started for.
        answer_bytes: Size of the largest response that is read from it as a whole.
        connect_s: Connection timeout in seconds; None for the system's default.
    """

    def __init__(
        self,
        instance: Instance,
        revision: int,
        answer_bytes: int = ANSWER_BYTES,
        connect_s: float | None = None,
    ) -> None:
        self.instance = instance
        self.revision = revision
        self._answer_bytes = max(answer_bytes, ANSWER_BYTES)  # metrics are read with the same limit
        self._connect_s = connect_s
        self.in_flight = 0
        self.draining = False
        self._pool: Pool | None = None
        self._calls: Calls | None = None
        self._idle: asyncio.Event | None = None

    @property
    def pool(self) -> Pool:
        """Connections to the instance's present address, which may change on a restart."""
        if self._pool is None or self._pool.address != self.instance.address:
            if self._pool:
                self._pool.close()
            self._pool = Pool(
                self.instance.address,
                max_connections=_CONNECTIONS,
                answer_bytes=self._answer_bytes,
                connect_s=self._connect_s,
            )
        return self._pool

    @property
    def calls(self) -> Calls | None:
        """Sender of bundled calls; None if the instance takes none, or does not read them now."""
        instance = self.instance
        if not getattr(instance, "takes_calls", False):  # plugins may lack the attribute
            return None
        calls = self._calls
        if calls is None or calls.address != instance.address:
            if calls:
                calls.close()
            calls = self._calls = Calls(instance.address, self._answer_bytes, self._connect_s)
        return None if calls.refused or calls.behind else calls

    @property
    def full(self) -> bool:
        """Whether it has as many calls as it can answer in time."""
        return self._calls is not None and self._calls.full

    @property
    def ready(self) -> bool:
        """Whether requests may be sent to it."""
        return self.instance.ready and not self.draining

    @property
    def load(self) -> tuple[bool, int]:
        """Key that sorts full replicas last, and others by their in-flight requests."""
        return self.full, self.in_flight

    def acquire(self) -> None:
        """Add an in-flight request, until it is released."""
        self.in_flight += 1

    def release(self) -> None:
        """Remove an in-flight request."""
        self.in_flight -= 1
        if self._idle and not self.in_flight:
            self._idle.set()

    async def idle(self) -> None:
        """Wait until it has no in-flight requests; call this only when it gets no new ones."""
        if self.in_flight:
            self._idle = asyncio.Event()
            await self._idle.wait()

    def close(self) -> None:
        """Close the connections to it."""
        if self._pool:
            self._pool.close()
        if self._calls:
            self._calls.close()
