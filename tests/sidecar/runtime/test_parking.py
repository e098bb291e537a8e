"""Parking of requests under overload."""

from __future__ import annotations

import asyncio
import contextlib
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from carpool.http.server import serve
from carpool.settings import FunctionSettings
from carpool.stream_rule import StreamRule
from sidecar.core.admission.shedding import Shedding
from sidecar.core.batcher import Batcher
from sidecar.core.load_counter import LoadCounter
from sidecar.policies.deadline import Deadline
from sidecar.runtime.batch_loop import QUANTUM, BatchLoop
from sidecar.runtime.ingress import Ingress
from sidecar.runtime.metrics import Metrics
from sidecar.runtime.recent_batches import RecentBatches
from sidecar.runtime.upstreams import FunctionUpstreams
from sidecar.testing import FakeClock
from tests.carpool.http.edge import Socketless
from tests.sidecar.runtime.conftest import on_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from carpool.http.server import Server

OBJECTIVE_S = 10.0
QUEUE_MAX = 3
POST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"


@contextlib.asynccontextmanager
async def overloadable(clock: FakeClock, streams: Any = None) -> AsyncIterator[Server]:
    """Serve a sidecar without an instance, so that admitted requests stay in its queue."""
    batcher = Batcher(
        Deadline(Deadline.Params()), batch_max=4, queue_max=QUEUE_MAX, shedding=Shedding("on")
    )
    ingress = Ingress(FunctionSettings.from_env({"carpool_slo": "10s"}), time.time)
    fleet = FunctionUpstreams(batcher, answer_bytes=1000)
    batch_loop = BatchLoop(
        batcher, ingress, Metrics(), RecentBatches(time.time), fleet, exec_timeout_s=60.0
    )
    batch_loop.streams = streams
    server = await serve(batch_loop, listen="127.0.0.1:0")
    server.now = batch_loop._now = clock
    batch_loop.shed_early(server, OBJECTIVE_S, batch_max=4)
    try:
        yield server
    finally:
        await server.stop()


def asks(server: Server) -> Socketless:
    """Return a new client that has sent a request."""
    client = Socketless(server)
    client.feed(POST)
    return client


async def iteration() -> None:
    """Let one iteration of the event loop end."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


@on_loop
async def test_requests_are_parked_after_refusal_while_any_would_be_refused() -> None:
    """After a refusal, requests are parked and refused in turn while any would be refused."""
    async with overloadable(FakeClock(1.0)) as server:
        intake = server.intake
        assert intake
        waiting = [asks(server) for _ in range(QUEUE_MAX)]
        await iteration()
        assert not intake.parking
        assert asks(server).sent.startswith(b"HTTP/1.1 429 ")
        await iteration()
        assert intake.parking
        late = asks(server)
        assert (b"", 1) == (late.sent, intake.parked)
        await iteration()
        assert late.sent.startswith(b"HTTP/1.1 429 ")
        for client in waiting[:2]:
            client.hang_up()
        await iteration()
        served = asks(server)
        await iteration()
        assert (b"", 0, False) == (served.sent, intake.parked, intake.parking)


@pytest.mark.parametrize("parks", [True, False])
@on_loop
async def test_after_a_long_iteration_requests_are_parked(*, parks: bool) -> None:
    """After a long iteration, requests are parked until the next one."""
    clock = FakeClock(1.0)
    async with overloadable(clock) as server:
        intake = server.intake
        assert intake
        asks(server)
        clock.advance(OBJECTIVE_S * QUANTUM * (1.01 if parks else 0.99))
        await iteration()
        assert parks is intake.parking
        asks(server)
        assert (1 if parks else 0) == intake.parked
        await iteration()
        assert (0, False) == (intake.parked, intake.parking)


@on_loop
async def test_request_parked_past_deadline_gets_retry_after() -> None:
    """A request parked past its deadline gets 503 with Retry-After, not 504."""
    async with overloadable(FakeClock(1.0)) as server:
        assert server.intake
        server.intake.waited_s = 2 * OBJECTIVE_S
        client = asks(server)
        assert client.sent.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after" in client.sent


@pytest.mark.parametrize(
    ("age_s", "waiting", "full"),
    [
        pytest.param(1.0, 3, True, id="calls take long to arrive, and are refused"),
        pytest.param(1.0, 2, False, id="they are served"),
        pytest.param(0.1, 3, False, id="they arrive at once, and are refused here"),
        pytest.param(4.0, 0, True, id="too late by the time that the answer is read"),
    ],
)
@on_loop
async def test_provider_is_told_to_refuse_calls_if_they_take_long_to_arrive(
    *, age_s: float, waiting: int, full: bool
) -> None:
    """A sidecar asks for fewer calls if it would refuse them, and they take long to arrive."""
    async with overloadable(FakeClock(1.0)) as server:
        assert server.overload
        for _ in range(waiting):
            asks(server)
        loop = cast("BatchLoop", server.overload)
        loop._spent_s = age_s
        assert (10_000, full) == (loop.late_after_ms, loop.full())


@on_loop
async def test_calls_refused_by_a_provider_are_counted() -> None:
    """Metrics and the scaler's load have the calls that a provider has refused."""
    async with overloadable(FakeClock(1.0)) as server:
        loop = cast("BatchLoop", server.overload)
        loop.load = LoadCounter(0.0)
        loop.refused_before(3)
        assert 3 == loop.metrics.refusals["late"]
        assert {"*": 3} == loop.load._sample.arrivals


@on_loop
async def test_any_number_of_refused_calls_is_counted_at_once() -> None:
    """Twelve bytes of a client that pretends to be a provider do not keep the sidecar busy."""
    async with overloadable(FakeClock(1.0)) as server:
        loop = cast("BatchLoop", server.overload)
        loop.load = LoadCounter(0.0)
        loop.refused_before(2**32 - 1)
        assert 2**32 - 1 == loop.metrics.requests["refused"]
        assert {"*": 2**32 - 1} == loop.load._sample.arrivals


@on_loop
async def test_parked_stream_is_not_refused_for_requests_waiting_for_batches() -> None:
    """A parked request is parsed before it is refused, as a stream does not wait for batches."""
    begun: list[object] = []
    streams = SimpleNamespace(
        rule=StreamRule(paths=frozenset({"/chat"})),
        takes=lambda exchange: exchange.target == "/chat",
        begin=begun.append,
    )
    async with overloadable(FakeClock(1.0), streams) as server:
        intake = server.intake
        assert intake
        for _ in range(QUEUE_MAX + 1):
            asks(server)
        await iteration()
        assert intake.parking
        chat, other = Socketless(server), Socketless(server)
        chat.feed(POST.replace(b"/", b"/chat", 1))
        other.feed(POST)
        assert 2 == intake.parked
        await iteration()
        assert (0, 1) == (len(chat.sent), len(begun))
        assert other.sent.startswith(b"HTTP/1.1 429 ")
