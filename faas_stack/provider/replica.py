"""A replica as calls see it: where it is reached, whether it is ready, how much it has to do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from carpool.http.call_client import Calls
from carpool.http.client import ANSWER_BYTES, Pool

if TYPE_CHECKING:
    from faas_stack.provider.backend import Instance

__all__ = ["Replica"]

_CONNECTIONS = 4096  # to one replica: as many as one edge accepts


class Replica:
    """An instance, what it was started for and how much it has to do.

    Args:
        instance: the instance.
        revision: of the deployment that it was started for.
        answer_bytes: the largest answer that is taken from it whole.
        connect_s: how long a connection to it may take to be made; None: as the system decides.
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
        self._answer_bytes = max(answer_bytes, ANSWER_BYTES)  # its metrics are an answer, too
        self._connect_s = connect_s
        self.in_flight = 0
        self.draining = False
        self._pool: Pool | None = None
        self._calls: Calls | None = None
        self._idle: asyncio.Event | None = None

    @property
    def pool(self) -> Pool:
        """Connections to where the instance is now: started again, it may have moved."""
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
        """Takes calls for it in bundles; None: it wants each by itself, or does not read them."""
        instance = self.instance
        if not getattr(instance, "takes_calls", False):  # those of plugins may not know of it
            return None
        calls = self._calls
        if calls is None or calls.address != instance.address:
            if calls:
                calls.close()
            calls = self._calls = Calls(instance.address, self._answer_bytes, self._connect_s)
        return None if calls.refused or calls.behind else calls

    @property
    def ready(self) -> bool:
        """Whether it may be sent a request."""
        return self.instance.ready and not self.draining

    def acquire(self) -> None:
        """It has one request more, until that is released."""
        self.in_flight += 1

    def release(self) -> None:
        """A request is over."""
        self.in_flight -= 1
        if self._idle and not self.in_flight:
            self._idle.set()

    async def idle(self) -> None:
        """Wait until it has no request; only sensible when it gets no new ones."""
        if self.in_flight:
            self._idle = asyncio.Event()
            await self._idle.wait()

    def close(self) -> None:
        """Close the connections to it."""
        if self._pool:
            self._pool.close()
        if self._calls:
            self._calls.close()
