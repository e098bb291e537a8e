"""Order of sending merged requests and dividing responses."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from carpool.http.client import Pool
from carpool.http.server import serve
from carpool.settings import FunctionSettings
from sidecar.core.batcher import Batcher
from sidecar.policies.deadline import Deadline
from sidecar.runtime.batch_loop import BatchLoop
from sidecar.runtime.ingress import Ingress
from sidecar.runtime.merging import v1
from sidecar.runtime.metrics import Metrics
from sidecar.runtime.recent_batches import RecentBatches
from sidecar.runtime.upstreams import FunctionUpstreams
from tests.sidecar.runtime.conftest import on_loop
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from carpool.http.client import Response
    from carpool.http.server import Exchange
    from sidecar.runtime.merging.protocol import Message

PATH = "/v1/models/m:predict"


class Server:
    """Server that answers on demand."""

    def __init__(self) -> None:
        self.held: list[tuple[Exchange, list[int]]] = []
        self.seen: list[list[int]] = []

    def __call__(self, exchange: Exchange) -> None:
        """Answer probes and hold predictions."""
        if exchange.method == "GET":
            exchange.reply(200, b"{}")
            return
        instances = json.loads(exchange.body)["instances"]
        self.seen.append(instances)
        self.held.append((exchange, instances))

    async def answers(self, status: int = 200) -> None:
        """Answer the next request."""
        await wait_until_async(lambda: bool(self.held), what="a request")
        exchange, instances = self.held.pop(0)
        exchange.reply(status, json.dumps({"predictions": instances}).encode())


class Running:
    """A sidecar in front of that server.

    Attributes:
        waited: number of requests that waited at each division of a response.
    """

    PROBE = v1.PROBE
    read = staticmethod(v1.read)
    merged = staticmethod(v1.merged)

    def __init__(self) -> None:
        self.server = Server()
        self.batcher = Batcher(Deadline(Deadline.Params()), batch_max=4, queue_max=9)
        self.waited: list[int] = []
        self.pool: Pool

    def divided(self, answer: Message, requests: Sequence[v1.Instances]) -> list[Message]:
        """Divide a response as the form ``v1`` does."""
        self.waited.append(self.batcher.queued)
        return v1.divided(answer, requests)

    async def asks(self, instance: int) -> asyncio.Task[Response]:
        """Send a request that has to wait because the server is busy."""
        queued = self.batcher.queued
        body = json.dumps({"instances": [instance]}).encode()
        task = asyncio.create_task(self.pool.request("POST", PATH, (), body, HANG_S))
        await wait_until_async(lambda: self.batcher.queued > queued, what="the request")
        return task


@asynccontextmanager
async def running() -> AsyncIterator[Running]:
    """Run a sidecar and its server, which is up."""
    made = Running()
    server = await serve(made.server, listen="127.0.0.1:0")
    upstreams = FunctionUpstreams(made.batcher, 1000, made)
    settings = FunctionSettings.from_env({"carpool_wire": "v1"})
    ingress, recent = Ingress(settings, time.time, upstreams.backoff), RecentBatches(time.time)
    batch_loop = BatchLoop(made.batcher, ingress, Metrics(), recent, upstreams, HANG_S)
    upstreams.on_change = lambda _: batch_loop.changed()
    (instance,) = upstreams.start([server.address], 4)
    front = await serve(batch_loop, listen="127.0.0.1:0")
    made.pool = Pool(front.address)
    try:
        await wait_until_async(lambda: instance.up, what="the instance")
        yield made
    finally:
        made.pool.close()
        upstreams.close()
        await front.stop()
        await server.stop()


async def merged(run: Running, first: int, *instances: int) -> list[asyncio.Task[Response]]:
    """Send requests: one occupies the server, others are merged, and the last waits behind them."""
    body = json.dumps({"instances": [first]}).encode()
    tasks = [asyncio.create_task(run.pool.request("POST", PATH, (), body, HANG_S))]
    await wait_until_async(lambda: bool(run.server.held), what="the first request")
    *together, last = instances
    tasks += [await run.asks(each) for each in together]
    await run.server.answers()
    await wait_until_async(lambda: len(run.server.seen) > 1, what="the merged request")
    return [*tasks, await run.asks(last)]


def predictions(responses: Sequence[Response]) -> list[Any]:
    """Return the predictions of successful responses."""
    assert {200} == {response.status for response in responses}
    return [json.loads(response.body)["predictions"] for response in responses]


@on_loop
async def test_next_request_is_sent_before_previous_response_is_divided() -> None:
    """The next request is sent before a merged response is divided, so the server is not idle."""
    async with running() as run:
        tasks = await merged(run, 1, 2, 3, 4)
        await run.server.answers()
        await run.server.answers()
        assert [[1], [2], [3], [4]] == predictions(await asyncio.gather(*tasks))
        assert [[1], [2, 3], [4]] == run.server.seen
        assert [0] == run.waited


@on_loop
async def test_parts_of_failed_merged_request_are_sent_before_waiting_ones() -> None:
    """The parts of a failed merged request are sent before waiting requests, as they are older."""
    async with running() as run:
        tasks = await merged(run, 1, 2, 3, 4)
        await run.server.answers(500)
        for _ in range(3):
            await run.server.answers()
        assert [[1], [2], [3], [4]] == predictions(await asyncio.gather(*tasks))
        assert [[1], [2, 3], [2], [3], [4]] == run.server.seen
        assert [] == run.waited
