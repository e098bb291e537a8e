"""One instance behind a sidecar: connections to it, and whether it is ready.

An instance is up when ``GET /_/ready`` answers 200, and down as soon as a batch cannot be
delivered. Nothing here decides what is sent where.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from carpool import wire
from carpool.errors import FunctionFault
from carpool.http.client import Pool

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.core.dispatch import Upstream

__all__ = ["Instance"]

_STARTING_S = 0.02
_STARTING_MAX_S = 0.25
_UP_S = 2.0
_PROBE_TIMEOUT_S = 5.0
_CONNECTIONS = 256  # the batcher sends fewer: two batches, or what the instance takes at once


class Instance:
    """One instance.

    Args:
        upstream: what the core knows of it; its name is the address.
        on_change: called with the instance when it came up or went down.

    Attributes:
        reason: why it is not up.
        since: when it came to be known here.
    """

    def __init__(self, upstream: Upstream, on_change: Callable[[Instance], None]) -> None:
        self.upstream = upstream
        self.pool = Pool(upstream.name, max_connections=_CONNECTIONS)
        self.reason = "starting"
        self.since = asyncio.get_running_loop().time()
        self._on_change = on_change
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def up(self) -> bool:
        """Whether it is ready."""
        return self.upstream.up

    def watch(self) -> None:
        """Probe it until `close`."""
        self._task = asyncio.get_running_loop().create_task(self._probe_forever())

    def lost(self, reason: str) -> None:
        """It did not take a batch: down until it answers a probe."""
        self._become(up=False, reason=reason)
        self._wake.set()

    def close(self) -> None:
        """Stop probing and close the connections."""
        if self._task:
            self._task.cancel()
        self.pool.close()

    async def _probe_forever(self) -> None:
        pause_s = _STARTING_S
        while True:
            up, reason = await self._probe()
            self._become(up=up, reason=reason)
            pause_s = _UP_S if up else min(_STARTING_MAX_S, 1.5 * min(pause_s, _STARTING_MAX_S))
            self._wake.clear()
            try:
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
                pause_s = _STARTING_S
            except TimeoutError:
                pass

    async def _probe(self) -> tuple[bool, str]:
        try:
            response = await self.pool.request("GET", "/_/ready", timeout_s=_PROBE_TIMEOUT_S)
        except FunctionFault as error:
            return False, str(error)
        except TimeoutError:
            return self.up, "it does not answer probes"  # busy is not broken
        if response.status == 200:  # noqa: PLR2004 - the one status that means ready
            self.upstream.at_once = _at_once(response.header(wire.AT_ONCE_HEADER.encode()))
            return True, ""
        return False, response.body[:200].decode("utf-8", "replace") or "not ready"

    def _become(self, *, up: bool, reason: str) -> None:
        changed = self.upstream.up is not up
        self.upstream.up = up
        self.reason = reason
        if changed:
            self._on_change(self)


def _at_once(header: bytes | None) -> int:
    """How many batches a ready instance says it works on at once: one if it says nothing."""
    return min(max(1, int(header)), _CONNECTIONS - 1) if header and header.isdigit() else 1
