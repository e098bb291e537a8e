"""Calls that reach a sidecar bundled on one connection, as a provider sends them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from carpool.http.call_client import Calls
from carpool.wire import CALLS_HEADER
from tests.carpool.http.test_calls import Caller, send
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.gate import Gate
    from tests.sidecar.runtime.conftest import Sidecar, Start

HEAD = b"POST /\nx-carpool-explain: 1\n"


@asynccontextmanager
async def calling(running: Sidecar) -> AsyncIterator[Calls]:
    """Open a connection for calls to a sidecar that advertises them."""
    said = await running.pool.request("GET", "/_/ready")
    assert b"true" == said.header(CALLS_HEADER.encode())
    calls = Calls(running.pool.address, 100_000, None)
    try:
        async with asyncio.timeout(HANG_S):
            yield calls
    finally:
        calls.close()


def test_calls_of_one_bundle_become_one_batch(sidecar: Start) -> None:
    """The calls of a bundle share a batch with separate responses, and a bad call fails alone."""

    async def run() -> None:
        async with sidecar() as running, calling(running) as calls:
            callers = [send(calls, body, head=HEAD) for body in (b"a", b"bad", b"b")]
            outcomes = [await caller.outcome for caller in callers]
            assert [200, 422, 200] == [status for status, _, _ in outcomes]
            assert [b"a", b"b"] == [outcomes[0][2], outcomes[2][2]]
            assert [b"3"] * 3 == [headers[b"x-carpool-batch"] for _, headers, _ in outcomes]

    asyncio.run(run())


def test_time_limit_is_read_from_headers_of_each_call(sidecar: Start, gate: Gate) -> None:
    """A call's own time limit counts, in either part of its head."""

    async def run() -> None:
        async with sidecar(carpool_batch_max="1") as running, calling(running) as calls:
            busy = send(calls, gate.word.encode(), head=HEAD)
            await running.until_metric("batch_in_flight", 1)
            late = send(calls, b"crash", b"x-start-time: 1\n", b"POST /\nx-timeout: 100ms\n")
            assert 504 == (await late.outcome)[0]
            gate.open()
            assert 200 == (await busy.outcome)[0]

    asyncio.run(run())


def test_cancelled_call_frees_queue_place(sidecar: Start, gate: Gate) -> None:
    """A cancelled call frees its place in the queue and is never sent to the handler."""

    async def run() -> None:
        async with sidecar(carpool_batch_max="1") as running, calling(running) as calls:
            busy = send(calls, gate.word.encode(), head=HEAD)
            await running.until_metric("batch_in_flight", 1)
            staying = send(calls, b"stays")
            leaving = calls.send(HEAD, b"", b"crash", Caller())
            await running.until_metric("batch_queue_requests", 2)
            calls.cancel(leaving)
            await running.until_metric("batch_queue_requests", 1)
            gate.open()
            assert [200, 200] == [(await call.outcome)[0] for call in (busy, staying)]

    asyncio.run(run())


def test_terminated_sidecar_answers_pending_calls(sidecar: Start, gate: Gate) -> None:
    """A terminated sidecar answers its calls and exits without waiting for a timeout."""

    async def run() -> None:
        async with sidecar() as running, calling(running) as calls:
            caller = send(calls, gate.word.encode(), head=HEAD)
            await running.until_metric("batch_in_flight", 1)
            running.process.terminate()
            await wait_until_async(lambda: calls._connection is None)
            gate.open()
            assert 200 == (await caller.outcome)[0]
            await wait_until_async(lambda: running.process.poll() is not None)
            assert 0 == running.process.returncode

    asyncio.run(run())
