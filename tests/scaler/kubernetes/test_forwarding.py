"""Requests to a scaler that does not lead are forwarded to the leader, over real sockets."""

from __future__ import annotations

import asyncio
import functools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from carpool.http.client import Pool
from carpool.http.server import Limits, serve
from carpool.sync import PATH
from scaler.edge import Edge
from scaler.kubernetes import forwarding
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from carpool.http.client import Response
    from carpool.http.server import Application, Exchange


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on its own event loop."""

    @functools.wraps(test)
    def run(*args: object, **named: object) -> None:
        asyncio.run(test(*args, **named))

    return run


def leader(exchange: Exchange) -> None:
    """Reply with the method, target, token and body of the request."""
    token = (exchange.header(b"authorization") or b"").decode()
    said = f"{exchange.method} {exchange.target} {token} {bytes(exchange.body).decode()}"
    exchange.reply(201, said.encode(), "text/plain", [("x-proof", "p")])


@asynccontextmanager
async def listening(app: Application) -> AsyncIterator[str]:
    """Run a server and yield its address."""
    server = await serve(app, listen="127.0.0.1:0", limits=Limits())
    try:
        yield server.address
    finally:
        await server.stop()


async def ask(address: str, method: str, target: str, body: bytes = b"") -> Response:
    """Send one request with a token."""
    pool = Pool(address)
    try:
        return await pool.request(method, target, [("authorization", "Bearer t")], body)
    finally:
        pool.close()


@on_a_loop
async def test_requests_are_forwarded_to_leader() -> None:
    """Method, target, token and body reach the leader, and its whole response comes back."""
    edge = Edge()
    async with listening(leader) as there, listening(edge.all) as here:
        edge.forward(lambda: there)
        found = await ask(here, "POST", f"{PATH}?a=b%20c", b"hello")
        assert (201, b"p") == (found.status, found.header(b"x-proof"))
        assert b"text/plain" == found.header(b"content-type")
        assert f"POST {PATH}?a=b%20c Bearer t hello" == found.body.decode()
        edge.close()


@on_a_loop
async def test_sidecar_listener_forwards_only_sidecar_requests() -> None:
    """A listener for sidecars forwards only their requests."""
    edge = Edge()
    async with listening(leader) as there, listening(edge.syncs) as here:
        edge.forward(lambda: there)
        assert 201 == (await ask(here, "POST", PATH)).status
        assert [404, 404] == [
            (await ask(here, "GET", path)).status for path in ("/v1/functions", "/healthz")
        ]
        edge.close()


@on_a_loop
async def test_requests_without_leader_get_503_with_retry_time() -> None:
    """Without a reachable leader, requests get 503 and a retry time; the scaler is healthy."""
    edge = Edge()
    async with listening(leader) as there, listening(edge.all) as here:
        known = [""]
        edge.forward(lambda: known[0])
        assert (503, b"1") == await _refusal(here)
        assert 200 == (await ask(here, "GET", "/healthz")).status
        known[0] = there
        assert 201 == (await ask(here, "GET", "/v1/functions")).status
    async with listening(edge.all) as here:  # the leader has ended
        assert (503, b"1") == await _refusal(here)
        edge.close()


@on_a_loop
async def test_requests_are_not_forwarded_twice() -> None:
    """A request is forwarded only once, even if two scalers take each other for the leader."""
    first, second = Edge(), Edge()
    async with listening(first.all) as one, listening(second.all) as other:
        first.forward(lambda: other)
        second.forward(lambda: one)
        assert (503, b"1") == await _refusal(one)
        first.close()
        second.close()


@on_a_loop
async def test_leader_answers_requests_itself() -> None:
    """A scaler answers requests itself while it leads, on the same listener."""
    edge = Edge()

    def own(exchange: Exchange) -> None:
        exchange.reply(200, b"own", "text/plain")

    async with listening(leader) as there, listening(edge.all) as here:
        assert (503, b"1") == await _refusal(here)  # it has only just started
        edge.serve(own, own)
        assert b"own" == (await ask(here, "GET", "/")).body
        edge.forward(lambda: there)
        assert 201 == (await ask(here, "GET", "/")).status
        edge.close()


@on_a_loop
async def test_pending_requests_to_silent_leader_get_retry_on_takeover() -> None:
    """Requests pending at a silent leader are told to retry as soon as this scaler leads."""
    asked, edge = asyncio.Event(), Edge()

    def silent(exchange: Exchange) -> None:
        del exchange
        asked.set()

    async with listening(silent) as there, listening(edge.all) as here:
        edge.forward(lambda: there)
        with patch.object(forwarding, "_SYNC_TIMEOUT_S", 2 * HANG_S):
            waiting = asyncio.ensure_future(ask(here, "POST", PATH))
            await asked.wait()
        edge.serve(leader, leader)
        found = await asyncio.wait_for(waiting, HANG_S)
        assert (503, b"1") == (found.status, found.header(b"retry-after"))
        assert 201 == (await ask(here, "POST", PATH)).status


@on_a_loop
async def test_request_is_answered_if_forwarding_is_cancelled_before_start() -> None:
    """A request is answered even if its forwarding task is cancelled before the first step."""
    edge = Edge()
    edge.forward(lambda: "127.0.0.1:1")

    def takes_over(exchange: Exchange) -> None:
        edge.all(exchange)
        edge.serve(leader, leader)

    async with listening(takes_over) as here:
        assert (503, b"1") == await asyncio.wait_for(_refusal(here), HANG_S)


async def _refusal(address: str) -> tuple[int, bytes | None]:
    found = await ask(address, "GET", "/v1/functions")
    return found.status, found.header(b"retry-after")
