"""Makes a sidecar the front of a function, or one of its instances, if there is a scaler.

A front has no handler of its own; the scaler tells it the addresses of its instances. An instance
has one, and takes whole batches for it beside plain requests.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.sync import batch_key
from sidecar.core.cold_start import ColdStart
from sidecar.core.load_counter import LoadCounter
from sidecar.runtime.relay import Relay
from sidecar.runtime.scaler_client.announcer import Announcer, own_address
from sidecar.runtime.scaler_client.front import Front
from sidecar.runtime.scaler_client.sync import Sync

if TYPE_CHECKING:
    from sidecar.core.request import Request
    from sidecar.options import Options
    from sidecar.runtime.batch_loop import BatchLoop
    from sidecar.runtime.handler_liveness import ProbedInstance

__all__ = ["Membership", "front", "instance"]

_PROBED_S = 2.2  # time by which the probes of a front without a scaler have noticed it
_LEAVING_MAX_S = 5.0  # stopping must end in bounded time


class Membership:
    """A sidecar's membership with the scaler, from joining to leaving.

    Args:
        sync: Exchanges messages with the scaler.
        announcer: Makes the messages of an instance; None for a front.
    """

    def __init__(self, sync: Sync, announcer: Announcer | None = None) -> None:
        self._sync = sync
        self._announcer = announcer

    def join(self) -> None:
        """Start exchanging messages."""
        self._sync.start()

    async def leave(self) -> None:
        """Announce that the sidecar leaves, and wait until fronts send no more batches."""
        if self._announcer:
            self._announcer.leave()
        await self._sync.send_last()
        if self._announcer:
            noticed_s = _PROBED_S if self._sync.lost else 2 * self._announcer.interval_s
            await asyncio.sleep(min(noticed_s, _LEAVING_MAX_S))


def front(options: Options, batch_loop: BatchLoop) -> Membership:
    """Make this sidecar the front of a function."""
    batcher, upstreams, metrics = batch_loop.batcher, batch_loop.upstreams, batch_loop.metrics
    upstreams.key = batch_key(options.scaler_token, options.function)
    upstreams.silence_max_s = options.silence_max_s
    load = LoadCounter(time.monotonic())
    reporter = Front(options.function, load, batcher, upstreams, metrics, batch_loop.changed)
    if options.plan_folder:
        reporter.save_plans(Path(options.plan_folder) / "plan.json")
    sync = Sync(options.scaler, options.scaler_token, reporter)
    batch_loop.load, batch_loop.front, batch_loop.on_starving = load, reporter, sync.urgent
    batch_loop.cold_start = ColdStart(batcher, upstreams, _timeout_s)
    load.on_surge = lambda _: sync.urgent()
    batch_loop.readiness.front_not_ready = reporter.not_ready
    metrics.watch_sync(lambda: sync.refused)
    return Membership(sync)


def instance(options: Options, batch_loop: BatchLoop) -> Membership:
    """Make this sidecar an instance of a function."""
    upstreams = batch_loop.upstreams
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
    batch_loop.metrics.watch_sync(lambda: sync.refused)
    local_change = upstreams.on_change

    def changed(handler: ProbedInstance) -> None:
        local_change(handler)
        sync.urgent()  # so that fronts learn this soon

    upstreams.on_change = changed
    return Membership(sync, announcer)


def _timeout_s(request: Request) -> float:
    payload = request.payload
    return float(min(payload.template.timeout_s, payload.exchange.timeout_s))
