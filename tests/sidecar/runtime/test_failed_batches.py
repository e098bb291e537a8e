"""Batches without a response release everything once their requests are answered."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

import pytest

from carpool.http.client import ConnectionFailed, Pool
from carpool.http.server import serve
from carpool.settings import FunctionSettings
from sidecar.core.batch import Batch
from sidecar.core.batcher import Batcher
from sidecar.core.request import Request
from sidecar.policies.deadline import Deadline
from sidecar.runtime.batch_loop import BatchLoop
from sidecar.runtime.ingress import Ingress
from sidecar.runtime.merging import protocol_of
from sidecar.runtime.metrics import Metrics
from sidecar.runtime.recent_batches import RecentBatches
from sidecar.runtime.upstreams import FunctionUpstreams
from tests.sidecar.runtime.conftest import on_loop
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from carpool.http.server import Exchange

HELD = (ConnectionFailed, Batch, Request)


def dies_of_work(exchange: Exchange) -> None:
    """Answer probes, but close the connection of each batch."""
    if exchange.method == "GET":
        exchange.reply(200, b"{}")
    else:
        exchange.abort()


@pytest.mark.parametrize("wire", ["carpool", "v1"])
@pytest.mark.usefixtures("no_collector")
@on_loop
async def test_requests_of_broken_batch_are_released(wire: str) -> None:
    """The requests of a broken batch and its error are released without the cycle collector."""
    before = {id(thing) for thing in held()}
    function = await serve(dies_of_work, listen="127.0.0.1:0")
    batcher = Batcher(Deadline(Deadline.Params()), batch_max=4, queue_max=9)
    settings = FunctionSettings.from_env({"carpool_wire": wire})
    upstreams = FunctionUpstreams(batcher, 1000, protocol_of(wire))
    ingress = Ingress(settings, time.time, upstreams.backoff)
    metrics = Metrics()
    recent = RecentBatches(time.time)
    batch_loop = BatchLoop(batcher, ingress, metrics, recent, upstreams, HANG_S)
    upstreams.on_change = lambda _: batch_loop.changed()
    (instance,) = upstreams.start([function.address], 4)
    front = await serve(batch_loop, listen="127.0.0.1:0")
    pool = Pool(front.address)
    await wait_until_async(lambda: instance.up, what="the instance")
    path = "/v1/models/m:predict"
    response = await pool.request("POST", path, (), b'{"instances": [1]}', HANG_S)
    assert 502 == response.status
    assert b"connection" in response.body
    pool.close()
    upstreams.close()
    open_connections = front.connections, function.connections
    await wait_until_async(lambda: not any(open_connections), what="the end of connections")
    await front.stop()
    await function.stop()
    assert [] == [thing for thing in held() if id(thing) not in before]


def held() -> list[object]:
    """Return batches, requests and their errors that have not been released."""
    return [thing for thing in gc.get_objects() if isinstance(thing, HELD)]
