"""A sidecar's place among those of its function, where there is a scaler: front or instance.

A front has no handler of its own; its instances are where the scaler says. An instance has one, and
takes whole batches for it beside plain requests.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.sync import batch_key
from sidecar.core.cold_start import ColdStart
from sidecar.core.load import Load
from sidecar.runtime.relay import Relay
from sidecar.runtime.scaler_client.front import Front
from sidecar.runtime.scaler_client.instance import Announcer, own_address
from sidecar.runtime.scaler_client.sync import Sync

if TYPE_CHECKING:
    from sidecar.core.batcher import Batcher
    from sidecar.core.request import Request
    from sidecar.options import Options
    from sidecar.runtime.batch_loop import BatchLoop
    from sidecar.runtime.metrics import Metrics
    from sidecar.runtime.upstream import Instance
    from sidecar.runtime.upstreams import FunctionUpstreams

__all__ = ["Membership", "front", "instance"]

_PROBED_S = 2.2  # a front that hears nothing of the scaler sees for itself by then
_LONGEST_S = 5.0  # a process that is stopped has not for ever


class Membership:
    """The conversation with the scaler, from joining to leaving.

    Args:
        sync: The conversation.
        announcer: Speaks for an instance; None for a front.
    """

    def __init__(self, sync: Sync, announcer: Announcer | None = None) -> None:
        self._sync = sync
        self._announcer = announcer

    def join(self) -> None:
        """Begin to talk."""
        self._sync.start()

    async def leave(self) -> None:
        """Say that it leaves, and serve until no more batches are sent."""
        if self._announcer:
            self._announcer.leave()
        await self._sync.once()
        if self._announcer:
            told_s = _PROBED_S if self._sync.lost else 2 * self._announcer.interval_s
            await asyncio.sleep(min(told_s, _LONGEST_S))


def front(
    options: Options,
    batch_loop: BatchLoop,
    batcher: Batcher,
    upstreams: FunctionUpstreams,
    metrics: Metrics,
) -> Membership:
    """Make this sidecar the front of a function."""
    upstreams.key = batch_key(options.scaler_token, options.function)
    load = Load(time.monotonic())
    speaker = Front(options.function, load, batcher, upstreams, metrics, batch_loop.changed)
    if options.plan_folder:
        speaker.remember(Path(options.plan_folder) / "plan.json")
    sync = Sync(options.scaler, options.scaler_token, speaker)
    batch_loop.load, batch_loop.front, batch_loop.on_starving = load, speaker, sync.urgent
    batch_loop.cold_start = ColdStart(batcher, upstreams, _timeout_s)
    load.on_surge = sync.urgent
    batch_loop.readiness.front_not_ready = speaker.not_ready
    metrics.watch_sync(lambda: sync.refused)
    return Membership(sync)


def instance(
    options: Options, batch_loop: BatchLoop, upstreams: FunctionUpstreams, metrics: Metrics
) -> Membership:
    """Make this sidecar that of one instance, its only one."""
    (local,) = upstreams
    key = batch_key(options.scaler_token, options.function)
    batch_loop.relay = Relay(local, options.exec_timeout_s, key)
    where = own_address(options.listen, options.announce, options.scaler)
    announcer = Announcer(
        options.function,
        options.instance_class,
        where,
        local,
        lambda: batch_loop.readiness.failing(),  # noqa: PLW0108 - it is set later
    )
    sync = Sync(options.scaler, options.scaler_token, announcer)
    metrics.watch_sync(lambda: sync.refused)
    noticed = upstreams.on_change

    def changed(handler: Instance) -> None:
        noticed(handler)
        sync.urgent()  # the fronts should know

    upstreams.on_change = changed
    return Membership(sync, announcer)


def _timeout_s(request: Request) -> float:
    return float(request.payload.template.timeout_s)
