"""Finished requests are released at once.

The cycle collector runs rarely and late; until then, everything reachable from a cycle is kept,
which may be a body of many megabytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from functools import partial

import pytest

from carpool.http.client import ConnectionFailed, Pool
from carpool.http.connection import Connection
from carpool.http.server import Exchange, Limits
from tests.carpool.http.edge import connect, serving
from tests.waiting import wait_until_async


class Body(bytearray):
    """A body that supports weak references."""


@pytest.mark.usefixtures("no_collector")
def test_disconnected_client_is_not_kept_in_memory() -> None:
    """Neither the request nor the connection of a client that left is kept."""
    watched: list[weakref.ref[Body]] = []

    def app(exchange: Exchange) -> None:
        body = Body(exchange.body)
        watched.append(weakref.ref(body))
        exchange.on_gone = partial(repr, (exchange, body))

    async def run() -> None:
        async with serving(app, limits=Limits()) as server:
            _, writer = await connect(server)
            writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi")
            await wait_until_async(lambda: watched, what="the request")
            writer.close()
            await wait_until_async(lambda: not server.connections, what="the client's end")
            await asyncio.sleep(0)
            assert [None] == [body() for body in watched]
            assert [] == [thing for thing in gc.get_objects() if isinstance(thing, Connection)]

    asyncio.run(run())


@pytest.mark.usefixtures("no_collector")
def test_request_body_is_released_when_peer_dies() -> None:
    """The error raised when the peer dies keeps no reference to the body."""

    async def run() -> None:
        async with serving(Exchange.abort, limits=Limits()) as server:
            pool = Pool(server.address)
            body = Body(b"hi")
            watched = weakref.ref(body)
            with contextlib.suppress(ConnectionFailed):
                await pool.request("POST", "/", (), body)
            del body
            pool.close()
            await asyncio.sleep(0)
            assert watched() is None

    asyncio.run(run())


@pytest.mark.parametrize("idle", [False, True])
@pytest.mark.usefixtures("no_collector")
def test_body_of_abandoned_request_is_released(*, idle: bool) -> None:
    """Neither an idle nor a new connection keeps the body of an abandoned request."""
    waiting: list[Exchange] = []

    async def run() -> None:
        async with serving(waiting.append, limits=Limits()) as server:
            pool = Pool(server.address)
            if idle:
                first = asyncio.create_task(pool.request("GET", "/"))
                await wait_until_async(lambda: waiting, what="the first request")
                waiting.pop().reply(200, b"")
                await first
            body = Body(b"hi")
            watched = weakref.ref(body)
            outcomes: list[object] = []
            pending = pool.begin("POST", "/", (), body)
            del body
            pending.then(outcomes.append)
            await wait_until_async(lambda: waiting, what="the request")
            pending.give_up()
            del pending
            await wait_until_async(lambda: outcomes, what="its outcome")
            assert [TimeoutError] == [type(outcome) for outcome in outcomes]
            await wait_until_async(lambda: not server.connections, what="the connection's end")
            waiting.clear()
            pool.close()
            assert watched() is None

    asyncio.run(run())
