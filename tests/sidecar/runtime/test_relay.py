"""Whole batches relayed by an instance's sidecar, with any outcome at the handler."""

from __future__ import annotations

import gc

import pytest

from carpool import wire
from carpool.http.client import ConnectionFailed, PendingRequest, Pool
from carpool.http.server import Exchange, serve
from sidecar.core.batcher import Batcher
from sidecar.policies.deadline import Deadline
from sidecar.runtime.relay import Relay
from sidecar.runtime.upstreams import FunctionUpstreams
from tests.sidecar.runtime.conftest import on_loop
from tests.waiting import HANG_S, wait_until_async

HELD = (Exchange, PendingRequest)
MOST_BYTES = 20


def handler(exchange: Exchange) -> None:
    """Answer probes, and treat a batch as its body says."""
    if exchange.method == "GET":
        exchange.reply(200, b"{}")
    elif exchange.body == b"die":
        exchange.abort()
    elif exchange.body != b"hang":
        exchange.reply(200, exchange.body, "text/plain", [("x-own", "1"), ("date", "then")])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"fine", (200, b"1")),
        (b"large" * MOST_BYTES, (502, None)),
        (b"hang", (504, None)),
        (b"die", None),
    ],
)
@pytest.mark.usefixtures("no_collector")
@on_loop
async def test_relayed_batch_ends_as_at_handler(
    body: bytes, expected: tuple[int, bytes | None] | None
) -> None:
    """Over a new or idle connection, the relayed batch ends as at the handler and is released."""
    function = await serve(handler, listen="127.0.0.1:0")
    batcher = Batcher(Deadline(Deadline.Params()), batch_max=4, queue_max=9)
    upstreams = FunctionUpstreams(batcher, 1000, None)
    (instance,) = upstreams.start([function.address], 4)
    instance.pool.answer_bytes = MOST_BYTES
    await wait_until_async(lambda: instance.up, what="the instance")
    relay = Relay(instance, 0.1 if body == b"hang" else HANG_S, "key")

    def pass_on(exchange: Exchange) -> None:
        assert relay.accepts(exchange)

    sidecar = await serve(pass_on, listen="127.0.0.1:0")
    front = Pool(sidecar.address)
    for _ in range(2):
        assert expected == await outcome(front, body)
        assert 0 == instance.relayed
    front.close()
    upstreams.close()
    open_connections = sidecar.connections, function.connections
    await wait_until_async(lambda: not any(open_connections), what="the end of connections")
    await sidecar.stop()
    await function.stop()
    assert [] == [thing for thing in gc.get_objects() if isinstance(thing, HELD)]


async def outcome(front: Pool, body: bytes) -> tuple[int, bytes | None] | None:
    """Return the status and the handler's header of the response; None without a response."""
    try:
        answer = await front.request("POST", "/", wire.batch_headers("key"), body, HANG_S)
    except ConnectionFailed:
        return None
    return answer.status, answer.header(b"x-own")
