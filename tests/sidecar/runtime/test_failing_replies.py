"""Requests of a batch are answered though the reply to another of them fails."""

from __future__ import annotations

import json
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from carpool.errors import DeadlineMissed
from carpool.http.exchange import Exchange
from carpool.http.server import serve
from carpool.settings import FunctionSettings
from sidecar.core.batcher import Batcher
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
    from collections.abc import AsyncIterator


class Recorded(Exchange):
    """Request for a prediction that keeps the statuses of its responses.

    Args:
        fails: Whether sending a response fails.
    """

    __slots__ = ("fails", "statuses")

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__("POST", "/v1/models/m:predict", ())
        self.body = b'{"instances": [1]}'
        self.received = time.monotonic()
        self.fails = fails
        self.statuses: list[int] = []

    def _respond(self, status: int, *_: object, **__: object) -> None:
        if self.fails:
            raise ZeroDivisionError
        self.statuses.append(status)


class Function:
    """Server that predicts zeros.

    Attributes:
        sizes: Number of instances in each call.
    """

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, exchange: Exchange) -> None:
        if exchange.method == "GET":
            exchange.reply(200, b"{}")
            return
        self.sizes.append(len(json.loads(exchange.body)["instances"]))
        exchange.reply(200, json.dumps({"predictions": [0] * self.sizes[-1]}).encode())


@asynccontextmanager
async def running(function: Function) -> AsyncIterator[BatchLoop]:
    """Run a batch loop with an instance that is up."""
    server = await serve(function, listen="127.0.0.1:0")
    batcher = Batcher(Deadline(Deadline.Params()), batch_max=4, queue_max=9)
    upstreams = FunctionUpstreams(batcher, 1000, protocol_of("v1"))
    settings = FunctionSettings.from_env({"carpool_wire": "v1"})
    ingress, recent = Ingress(settings, time.time, upstreams.backoff), RecentBatches(time.time)
    batch_loop = BatchLoop(batcher, ingress, Metrics(), recent, upstreams, HANG_S)
    upstreams.on_change = lambda _: batch_loop.changed()
    (instance,) = upstreams.start([server.address], 4)
    try:
        await wait_until_async(lambda: instance.up, what="the instance")
        yield batch_loop
    finally:
        upstreams.close()
        await server.stop()


@on_loop
async def test_members_of_batch_are_answered_though_one_reply_fails() -> None:
    """A reply that fails concerns its own request, and the next batch leaves as usual."""
    function = Function()
    async with running(function) as batch_loop:
        failing, other = Recorded(fails=True), Recorded()
        batch_loop(failing)
        batch_loop(other)
        await wait_until_async(lambda: other.statuses, what="the other answer")
        later = Recorded()
        batch_loop(later)
        await wait_until_async(lambda: later.statuses, what="a later answer")
        assert ([200], [200], [2, 1]) == (other.statuses, later.statuses, function.sizes)


@on_loop
async def test_requests_that_end_together_are_answered_though_one_reply_fails() -> None:
    """All requests that expire together are told so, except the one whose reply fails."""
    async with running(Function()) as batch_loop:
        exchanges = [Recorded(), Recorded(fails=True), Recorded()]
        expired = [batch_loop._ingress.read(exchange) for exchange in exchanges]
        batch_loop._sender.end(expired, DeadlineMissed("too late"), "expired")
        assert [[504], [], [504]] == [exchange.statuses for exchange in exchanges]
